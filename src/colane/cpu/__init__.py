"""The CPU side of training jobs as pure rules: where their cores start, how the right number is found (paper D)."""
