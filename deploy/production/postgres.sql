-- Run once by Postgres' own image, beside the database of Dagster: the Iceberg catalog.
CREATE DATABASE catalog;
