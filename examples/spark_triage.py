"""Dead letters of several brokers, with Spark: kept as Parquet, counted by cause, and a selection of them put back."""

import argparse
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, count, lit, split_part

import redelivery
from redelivery_spark import with_credentials


def look(spark: SparkSession, url: str, credentials: str) -> DataFrame:
    """Look at the dead letters of one broker, which stay there: no destination is given."""
    reader = spark.read.format("redelivery").option("url", url).option("credentialsFile", credentials)
    return reader.option("incomplete", "accept").load().withColumn("broker", lit(url))


def redrive(url: str, credentials: str, ids: list[str]) -> int:
    """Put these dead letters back where they came from, each confirmed before it leaves; return how many went."""
    if not ids:  # to the library no ids are no filter: all of them
        return 0
    with redelivery.dead_letters(with_credentials(url, credentials)) as dead:
        return dead.redrive(id=ids).redriven


def main() -> None:
    """Look, count, and put back."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", nargs="+", required=True, help="brokers, without credentials")
    parser.add_argument("--credentials", required=True, help="a TOML file with user and password")
    parser.add_argument("--out", required=True, help="the folder for the Parquet files")
    parser.add_argument("--redrive", metavar="CAUSE", help="put back what died of it")
    args = parser.parse_args()
    spark = SparkSession.builder.appName("triage").getOrCreate()
    looks = (look(spark, url, args.credentials) for url in args.url)
    reduce(DataFrame.unionByName, looks).write.mode("overwrite").parquet(args.out)
    dead = spark.read.parquet(args.out)  # one look: what is counted is what is put back
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
