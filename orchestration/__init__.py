"""Archives under Dagster: the component, its assets, checks, jobs, schedules and sensors."""

import logging

# Dagster imports dagster-openlineage wherever it is installed, and that warns if it is not set up.
logging.getLogger("openlineage").setLevel(logging.ERROR)
