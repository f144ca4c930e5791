"""Small decoders that end by themselves, and traps in how their steps are counted, and what is tested."""
# mypy: ignore-errors

import torch
from torch import Tensor, nn

END = 1


class Decoder(nn.Module):
    def __init__(self, words=5, width=8):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.cell = nn.GRUCell(width, width)
        self.head = nn.Linear(width, words)
        self.drop = nn.Dropout(0.5)
        self.cache = []

    def step(self, token, h):
        h = self.cell(self.embed(token), h)
        return self.head(h), h

    @torch.no_grad()
    def reads_the_number_behind(self, token: Tensor, h: Tensor, steps: int):
        tokens = []
        for t in range(2, steps + 2):
            logits, h = self.step(token, h + t)
            token = logits.argmax(-1)
            tokens.append(token)
            if (token == END).all():
                break
        return torch.stack(tokens, 1), t

    @torch.no_grad()
    def counts_on_from_its_list(self, token: Tensor, h: Tensor, steps: int):
        tokens = [token, token]
        for t in range(len(tokens), steps + 2):
            logits, h = self.step(token, h * t)
            token = logits.argmax(-1)
            tokens.append(token)
            if (token == END).all():
                break
        return torch.stack(tokens), t

    @torch.no_grad()
    def counts_up_to_the_length_of_its_list(self, token: Tensor, h: Tensor, steps: int):
        tokens, t, count = [token], 0, torch.zeros(())
        while t < len(tokens):
            logits, h = self.step(token, h)
            token = logits.argmax(-1)
            tokens.append(token)
            count = count + 1
            t += 1
            if count >= steps:
                break
        return torch.stack(tokens)

    @torch.no_grad()
    def counts_from_what_it_may_be_given(self, token: Tensor, h: Tensor, steps: int, t: int = 1):
        if steps > 7:
            t = 4
        while t < steps:
            logits, h = self.step(token, h * t)
            token = logits.argmax(-1)
            t += 1
            if (token == END).all():
                break
        return h, token

    @torch.no_grad()
    def declares_what_it_carries(self, token: Tensor, h: Tensor, steps: int):
        tokens = []
        for _ in range(steps):
            h: Tensor
            logits, h = self.step(token, h)
            token = logits.argmax(-1)
            tokens.append(token)
            if (token == END).all():
                break
        return torch.stack(tokens)

    @torch.no_grad()
    def has_an_else(self, token: Tensor, h: Tensor, steps: int):
        ended = 0
        for _ in range(steps):
            logits, h = self.step(token, h)
            token = logits.argmax(-1)
            if (token == END).all():
                break
        else:
            ended = 1
        return token, ended

    @torch.no_grad()
    def counts_its_list(self, token: Tensor, h: Tensor, steps: int):
        tokens = [token, token]
        while len(tokens) <= steps:
            logits, h = self.step(token, h)
            token = logits.argmax(-1)
            tokens.append(token)
            if (token == END).all():
                break
        return torch.stack(tokens), len(tokens)

    @torch.no_grad()
    def counts_behind_the_test(self, token: Tensor, h: Tensor, steps: int):
        t = 3
        while steps + 3 > t:
            logits, h = self.step(token, h + t)
            token = logits.argmax(-1)
            if (token == END).all():
                break
            t += 1
        return token, t

    @torch.no_grad()
    def counts_in_the_middle(self, token: Tensor, h: Tensor, steps: int):
        tokens, t = torch.zeros(3, 30, dtype=torch.long, device=token.device), 0
        while True:
            logits, h = self.step(token, h)
            t += 1
            token = logits.argmax(-1)
            tokens[:, t] = token
            if t >= steps or (token == END).all():
                break
        return tokens, t

    @torch.no_grad()
    def counts_in_two_tests(self, token: Tensor, h: Tensor, steps: int):
        t, unfinished = 0, torch.ones_like(token)
        while True:
            logits, h = self.step(token, h)
            token = logits.argmax(-1) * unfinished
            unfinished = unfinished.mul(token.ne(END).long())
            t += 1
            if unfinished.max() == 0:
                break
            if t > steps:
                break
        return token, unfinished, t

    @torch.no_grad()
    def counts_by_two(self, token: Tensor, h: Tensor, steps: int):
        t = 0
        while t < steps:
            logits, h = self.step(token, h)
            token = logits.argmax(-1)
            t += 2
            if (token == END).all():
                break
        return token, t

    @torch.no_grad()
    def tests_in_the_head(self, token: Tensor, h: Tensor, steps: int):
        done, t = token == END, 0
        while t < steps and not done.all():
            logits, h = self.step(token, h)
            token = logits.argmax(-1)
            done = done | (token == END)
            t += 1
        return token, done, t

    @torch.no_grad()
    def tests_the_number_of_the_step(self, token: Tensor, h: Tensor, steps: int):
        tokens = []
        for t in range(steps):
            logits, h = self.step(token, h)
            token = logits.argmax(-1)
            tokens.append(token)
            if (token == t % 5).any():
                break
        return torch.stack(tokens)

    @torch.no_grad()
    def takes_some_steps_at_least(self, token: Tensor, h: Tensor, steps: int):
        tokens = [token]
        for t in range(1, steps + 1):
            logits, h = self.step(token, h)
            token = logits.argmax(-1)
            tokens.append(token)
            if t > 2 and (token == END).any():
                break
        return torch.stack(tokens), t

    @torch.no_grad()
    def ends_in_two_ways(self, token: Tensor, h: Tensor, steps: int):
        tokens, done = [], token == END
        for t in range(steps):
            logits, h = self.step(token, h)
            token = logits.argmax(-1)
            tokens.append(token)
            done |= token == END
            if t == 5 or done.all() or token.sum().item() > 9:
                break
        return torch.stack(tokens), done

    @torch.no_grad()
    def tests_what_may_be_empty(self, token: Tensor, h: Tensor, steps: int, stop=None):
        for _ in range(steps):
            logits, h = self.step(token, h)
            token = logits.argmax(-1)
            if stop and (token == stop).all():
                break
        return token

    @torch.no_grad()
    def sets_its_number(self, token: Tensor, h: Tensor, steps: int):
        tokens = []
        for t in range(steps):
            t = t + 1
            logits, h = self.step(token, h * t)
            token = logits.argmax(-1)
            tokens.append(token)
            if (token == END).all():
                break
        return torch.stack(tokens), t

    @torch.no_grad()
    def draws_how_many(self, token: Tensor, h: Tensor, steps: int):
        tokens = [token]
        for _ in range(int(torch.randint(steps + 1, (1,)))):
            logits, h = self.step(token, h)
            token = logits.argmax(-1)
            tokens.append(token)
            if (token == END).all():
                break
        return torch.stack(tokens), torch.rand(1)

    @torch.no_grad()
    def looks_further_behind_the_test(self, token: Tensor, h: Tensor, steps: int):
        tokens, places = [], torch.randn(steps, 8, device=h.device)
        for t in range(steps):
            logits, h = self.step(token, h)
            token = logits.argmax(-1)
            tokens.append(token)
            if t == steps - 1 or (token == END).all():
                break
            h = h + places[t + 1]
        return torch.stack(tokens)

    @torch.no_grad()
    def tests_at_the_top(self, token: Tensor, h: Tensor, steps: int):
        tokens, done = [token], token == END
        for _ in range(steps):
            if done.all():
                break
            logits, h = self.step(token, h)
            token = logits.argmax(-1)
            tokens.append(token)
            done |= token == END
        return torch.stack(tokens)

    @torch.no_grad()
    def asks_how_much_there_is(self, token: Tensor, h: Tensor, steps: int):
        tokens = [token]
        for _ in range(steps):
            if len(tokens) > 2:
                h = h * 2
            logits, h = self.step(token, h)
            token = logits.argmax(-1)
            tokens.append(token)
            if (token == END).all():
                break
        return torch.stack(tokens)

    @torch.no_grad()
    def measures_what_it_grows(self, token: Tensor, h: Tensor, steps: int):
        tokens, unfinished = token.unsqueeze(1), torch.ones_like(token)
        while True:
            logits, h = self.step(token, h)
            token = logits.argmax(-1) * unfinished
            tokens = torch.cat([tokens, token.unsqueeze(1)], dim=1)
            unfinished = unfinished.mul((token != END).long())
            if unfinished.max() == 0:
                break
            if tokens.shape[1] > steps:
                break
        return tokens

    @torch.no_grad()
    def measures_in_the_head(self, token: Tensor, h: Tensor, steps: int):
        tokens, unfinished = token.unsqueeze(1), torch.ones_like(token)
        while tokens.size(1) <= steps and unfinished.sum().item() != 0:
            logits, h = self.step(token, h)
            token = logits.argmax(-1) * unfinished
            tokens = torch.cat([tokens, token.unsqueeze(1)], dim=1)
            unfinished = unfinished.mul((token != END).long())
        return tokens

    @torch.no_grad()
    def tests_which_number_counts(self, token: Tensor, h: Tensor, steps: int, most: int | None = None):
        tokens = [token]
        for _ in range(most if most else steps):
            logits, h = self.step(token, h)
            token = logits.argmax(-1)
            tokens.append(token)
            if (token == END).all():
                break
        words = [token]
        for _ in range(1, most or steps | 1):
            logits, h = self.step(token, h)
            token = logits.argmax(-1)
            words.append(token)
            if (token == END).all():
                break
        return torch.stack(tokens), torch.stack(words)

    @torch.no_grad()
    def looks_ahead_where_there_is_more(self, token: Tensor, h: Tensor, steps: int):
        tokens, given = [], torch.zeros(3, steps, device=h.device)
        for t in range(steps):
            logits, h = self.step(token, h)
            token = logits.argmax(-1)
            tokens.append(token)
            if t + 1 < steps and (given[:, t + 1] == token).all():
                break
        return torch.stack(tokens)

    @torch.no_grad()
    def looks_where_the_head_allows_it(self, token: Tensor, h: Tensor, steps: int):
        tokens, given, t = [token], torch.zeros(3, steps, device=h.device), 0
        while t < steps and (given[:, t] != token).any():
            logits, h = self.step(token, h)
            token = logits.argmax(-1)
            tokens.append(token)
            t += 1
        return torch.stack(tokens)

    @torch.no_grad()
    def looks_where_another_test_goes_on(self, token: Tensor, h: Tensor, steps: int):
        tokens, given, t = [token], torch.zeros(3, steps + 1, device=h.device), 0
        while True:
            logits, h = self.step(token, h)
            token = logits.argmax(-1)
            tokens.append(token)
            t += 1
            if t > steps:
                break
            if (given[:, t] == token).all():
                break
        return torch.stack(tokens)

    @torch.no_grad()
    def compares_where_there_is_something(self, token: Tensor, h: Tensor, steps: int):
        tokens, before = [], None
        for t in range(steps):
            logits, h = self.step(token, h)
            token = logits.argmax(-1)
            tokens.append(token)
            if t > 0 and (token == before).all():
                break
            before = token
        return torch.stack(tokens)

    @torch.no_grad()
    def divides_where_it_may(self, token: Tensor, h: Tensor, steps: int):
        for t in range(steps):
            logits, h = self.step(token, h)
            token = logits.argmax(-1)
            if t > 0 and token.sum() > 10 // t:
                break
        return h, token
