"""Built-in training jobs: the models of paper A in plain PyTorch (`python -m colane.workloads --help`)."""
