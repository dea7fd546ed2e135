"""Dead letters of several brokers, with Spark: stored as Parquet, counted by cause, and redriven by cause."""

import argparse
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, count, lit, split_part

import redelivery
from redelivery_spark import with_credentials


def look(spark: SparkSession, url: str, credentials: str) -> DataFrame:
    """Read the dead letters of one broker, which stay there; without a destination it is the dead-letter queue."""
    reader = spark.read.format("redelivery").option("url", url).option("credentialsFile", credentials)
    return reader.option("incomplete", "accept").load().withColumn("broker", lit(url))


def redrive(url: str, credentials: str, ids: list[str]) -> int:
    """Redrive these dead letters, each removed only after its copy was confirmed; return their number."""
    if not ids:  # an empty list would be no filter, which redrives all
        return 0
    with redelivery.dead_letters(with_credentials(url, credentials)) as dead:
        return dead.redrive(id=ids).redriven


def main() -> None:
    """Read, count, and redrive."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", nargs="+", required=True, help="brokers, without credentials")
    parser.add_argument("--credentials", required=True, help="a TOML file with user and password")
    parser.add_argument("--out", required=True, help="the folder for the Parquet files")
    parser.add_argument("--redrive", metavar="CAUSE", help="redrive the dead letters with this cause")
    args = parser.parse_args()
    spark = SparkSession.builder.appName("triage").getOrCreate()
    looks = (look(spark, url, args.credentials) for url in args.url)
    reduce(DataFrame.unionByName, looks).write.mode("overwrite").parquet(args.out)
    dead = spark.read.parquet(args.out)  # read once: the counted ones are redriven
    dead = dead.withColumn("kind", split_part("cause", lit(":"), lit(1)))
    groups = dead.groupBy("broker", "original_destination", "kind").agg(count("*").alias("letters"))
    for row in groups.orderBy(*groups.columns).collect():
        print(row.letters, row.broker, row.original_destination, row.kind)
    meant = dead.dropna(subset="original_id").filter(col("kind") == args.redrive).collect()
    for url in args.url:
        ids = [row.original_id for row in meant if row.broker == url]
        print(redrive(url, args.credentials, ids), "put back", url)


if __name__ == "__main__":
    main()
