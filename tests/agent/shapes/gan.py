"""A generator and a discriminator, each with an optimizer of its own."""

import hashlib
import sys

import torch
from torch import nn

torch.manual_seed(3)
torch.set_num_threads(1)
generator = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 16))
discriminator = nn.Sequential(nn.Linear(16, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
generator_optimizer = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.5, 0.999))
discriminator_optimizer = torch.optim.Adam(discriminator.parameters(), lr=1e-3, betas=(0.5, 0.999))
criterion = nn.BCEWithLogitsLoss()
real, fake = torch.ones(64, 1), torch.zeros(64, 1)
for _ in range(int(sys.argv[1])):
    made = generator(torch.randn(64, 8))
    discriminator_optimizer.zero_grad()
    loss = criterion(discriminator(torch.randn(64, 16)), real) + criterion(discriminator(made.detach()), fake)
    loss.backward()
    discriminator_optimizer.step()
    generator_optimizer.zero_grad()
    criterion(discriminator(made), real).backward()
    generator_optimizer.step()
parameters = [*generator.parameters(), *discriminator.parameters()]
weights = b"".join(parameter.detach().numpy().tobytes() for parameter in parameters)
print("weights", hashlib.sha256(weights).hexdigest())
