"""A stream with Spark: orders become rows of Parquet, failures are redelivered, and poison is dead-lettered."""

import argparse
import json

from pyspark.sql import Row, SparkSession

import redelivery_spark
from redelivery import Poison


def priced(row: Row) -> dict[str, object]:
    """Return a row of the result. An exception is a failed delivery; `Poison` is one without redelivery."""
    try:
        order = json.loads(row.body)
    except ValueError:
        raise Poison("it is not JSON") from None
    return {"id": row.message_id, "total": float(order["price"] * order["count"])}


def main() -> None:
    """Start the query, and restart it when it fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True, help="the broker, with the policy as its options")
    parser.add_argument("--destination", default="orders")
    parser.add_argument(
        "--state", required=True, help="an absolute path for the write-ahead log and the checkpoint"
    )
    parser.add_argument("--out", required=True, help="the folder for the Parquet files")
    parser.add_argument("--once", action="store_true", help="end when the whole queue has been processed")
    args = parser.parse_args()
    spark = SparkSession.builder.appName("orders").getOrCreate()
    source = (
        spark.readStream.format("redelivery").option("url", args.url).option("destination", args.destination)
    )
    rows = source.option("walDir", f"{args.state}/log").load()
    orders = redelivery_spark.process(rows, priced, result="id string, total double")
    write = redelivery_spark.foreach_batch(lambda df, batch: redelivery_spark.write_once(df, args.out, batch))
    query = orders.writeStream.foreachBatch(write).option("checkpointLocation", f"{args.state}/checkpoint")
    if args.once:
        query = query.trigger(availableNow=True)
    redelivery_spark.run(query.start)


if __name__ == "__main__":
    main()
