"""The steps of a pipeline: build, test, publish, deploy, stream, train, promote."""
