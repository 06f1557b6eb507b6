"""The runs of graphs and pipelines: recorded step by step in a checkpoint store."""
