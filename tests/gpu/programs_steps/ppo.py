"""Updates of an actor and a critic from a rollout on the device, in the sizes of CleanRL's PPO (continuous)."""

import argparse
import time

import torch
from torch import nn
from torch.distributions.normal import Normal


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.critic, self.actor_mean = self.net(1), self.net(6)
        self.actor_logstd = nn.Parameter(torch.zeros(1, 6))

    @staticmethod
    def net(outputs):
        return nn.Sequential(nn.Linear(17, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs))

    def forward(self, obs, action):
        mean = self.actor_mean(obs)
        probs = Normal(mean, torch.exp(self.actor_logstd.expand_as(mean)))
        return probs.log_prob(action).sum(1), probs.entropy().sum(1), self.critic(obs).view(-1)


def rollout(device, size):
    shapes = ((size, 17), (size, 6), (size,), (size,), (size,), (size,))
    return [torch.randn(shape).to(device) for shape in shapes]


def update_loss(agent, obs, action, old_logprob, advantages, returns, values):
    logprob, entropy, new_values = agent(obs, action)
    ratio = (logprob - old_logprob).exp()
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    policy_loss = torch.max(-advantages * ratio, -advantages * torch.clamp(ratio, 0.8, 1.2)).mean()
    clipped = values + torch.clamp(new_values - values, -0.2, 0.2)
    value_loss = 0.5 * torch.max((new_values - returns) ** 2, (clipped - returns) ** 2).mean()
    return policy_loss - 0.0 * entropy.mean() + 0.5 * value_loss


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=100)
    args = parser.parse_args()
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    agent = Agent().to(device)
    optimizer = torch.optim.Adam(agent.parameters(), lr=3e-4, eps=1e-5)
    obs, actions, logprobs, advantages, returns, values = rollout(device, 64 * args.steps)
    for epoch in range(args.epochs):
        begin = time.perf_counter()
        for index in torch.randperm(64 * args.steps, device=device).split(64):
            loss = update_loss(
                *(agent, obs[index], actions[index], logprobs[index], advantages[index], returns[index], values[index])
            )
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.4f}", end=" ")
        print(f"took {(time.perf_counter() - begin) / args.steps * 1e3:.4f} ms a step", flush=True)


if __name__ == "__main__":
    main()
