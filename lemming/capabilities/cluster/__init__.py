"""Model calls that the workers of a Dask cluster make."""
