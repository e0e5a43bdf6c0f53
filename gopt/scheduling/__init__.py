"""The verb `schedule`: where ops run and in which order, as a function that runs."""
