"""A model answers, one batch after the other: there is no optimizer."""

import hashlib
import sys

import torch

torch.manual_seed(6)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 10)).eval()
answers = hashlib.sha256()
with torch.inference_mode():
    for _ in range(int(sys.argv[1])):
        answers.update(model(torch.randn(128, 64)).numpy().tobytes())
print("weights", answers.hexdigest())
