"""A job small enough to read: people counted by city, in Spark's JVM and in a Python worker."""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from omnigraph.pipeline.java import find_java
from omnigraph.pipeline.session import session

PEOPLE = [("Ada", "London"), ("Bob", "Paris"), ("Cy", "London"), ("Dee", "Oslo")]


def shouted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows with the city in capitals."""
    for batch in batches:
        cities = [city.upper() for city in batch.column("city").to_pylist()]
        yield pa.RecordBatch.from_arrays(
            [pa.array(cities), batch.column("people")], schema=batch.schema
        )


def people_by_city(spark: SparkSession) -> DataFrame:
    """One row a city: a shuffle in the JVM, then Arrow batches through a worker."""
    people = spark.createDataFrame(PEOPLE, "name string, city string")
    counted = people.groupBy("city").count().withColumnRenamed("count", "people")
    return counted.mapInArrow(shouted, counted.schema)


def main() -> None:
    """Run the job and show where its Java came from."""
    java = find_java()
    spark = session(app_name="omnigraph-demo")
    print(f"Spark {spark.version} on Java {java.major} ({java.found_in})")
    for row in sorted(people_by_city(spark).collect()):
        print(f"{row['city']:<8} {row['people']}")
    spark.stop()


if __name__ == "__main__":
    main()
