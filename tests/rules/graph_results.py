"""Small decoders that end by themselves, and traps in what their steps leave behind."""
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
    def fills_the_list_of_the_model(self, token: Tensor, h: Tensor, steps: int):
        tokens = self.cache
        for _ in range(steps):
            logits, h = self.step(token, h)
            token = logits.argmax(-1)
            tokens.append(token)
            if (token == END).all():
                break
        return torch.stack(tokens)

    @torch.no_grad()
    def fills_two_names_of_a_list(self, token: Tensor, h: Tensor, steps: int):
        tokens = same = []
        for _ in range(steps):
            logits, h = self.step(token, h)
            token = logits.argmax(-1)
            tokens.append(token)
            if (token == END).all():
                break
        return torch.stack(tokens), same

    @torch.no_grad()
    def drops_while_training(self, token: Tensor, h: Tensor, steps: int):
        tokens = [token]
        for _ in range(steps):
            logits, h = self.step(token, self.drop(h))
            token = logits.argmax(-1)
            tokens.append(token)
            if (token == END).all():
                break
        return torch.stack(tokens), torch.rand(2)

    @torch.no_grad()
    def draws_behind_the_append(self, token: Tensor, h: Tensor, steps: int):
        scores = []
        for _ in range(steps):
            logits, h = self.step(token, h)
            scores.append(torch.rand_like(logits))
            token = torch.multinomial(logits.softmax(-1), 1).squeeze(1)
            if (token == END).all():
                break
        return torch.stack(scores), token

    @torch.no_grad()
    def yields_behind(self, token: Tensor, h: Tensor, steps: int):
        def rows():
            tokens, word, state = [], token, h
            for _ in range(steps):
                logits, state = self.step(word, state)
                word = logits.argmax(-1)
                tokens.append(word)
                if (word == END).all():
                    break
            yield from torch.stack(tokens, 1)

        return list(rows())

    @torch.no_grad()
    def reads_on_the_host(self, token: Tensor, h: Tensor, steps: int):
        seen = []
        for _ in range(steps):
            logits, h = self.step(token, h)
            token = logits.argmax(-1)
            seen += token.tolist()
            if (token == END).all():
                break
        return seen

    @torch.no_grad()
    def seeds_in_each_step(self, token: Tensor, h: Tensor, steps: int):
        tokens = []
        for t in range(steps):
            torch.manual_seed(t)
            logits, h = self.step(token, h)
            token = torch.multinomial(logits.softmax(-1), 1).squeeze(1)
            tokens.append(token)
            if (token == END).all():
                break
        return torch.stack(tokens, 1)

    @torch.no_grad()
    def appends_what_is_set_again(self, token: Tensor, h: Tensor, steps: int):
        tokens = [token]
        for _ in range(steps):
            logits, h = self.step(token, h)
            token = logits.argmax(-1)
            tokens.append(token)
            token = (token + 1) % 5
            if (token == END).all():
                break
        return torch.stack(tokens), len(tokens)

    @torch.no_grad()
    def appends_before_it_is_set(self, token: Tensor, h: Tensor, steps: int):
        tokens = []
        for _ in range(steps):
            tokens.append(token)
            logits, h = self.step(token, h)
            token = logits.argmax(-1)
            if (token == END).all():
                break
        return torch.stack(tokens), token

    @torch.no_grad()
    def numbers_after_the_end(self, token: Tensor, h: Tensor, steps: int):
        token, h = token[:1], h[:1]
        words = [END]
        for _ in range(steps):
            logits, h = self.step(token, h)
            token = logits.argmax(-1)
            if token.item() == END:
                break
            words.append(int(token))
        return words, token

    @torch.no_grad()
    def numbers_up_to_the_end(self, token: Tensor, h: Tensor, steps: int):
        token, h = token[:1], h[:1]
        words, scores = [], []
        for _ in range(steps):
            logits, h = self.step(token, h)
            score, token = logits.max(-1)
            words.append(token.item())
            scores.append(score.item())
            if token == END:
                break
        return words, scores, sum(scores)

    @torch.no_grad()
    def grows_by_kept_columns(self, token: Tensor, h: Tensor, steps: int):
        tokens = token[:, None]
        for _ in range(steps):
            logits, h = self.step(token, h)
            column = torch.multinomial(logits.softmax(-1), num_samples=1)
            tokens = torch.cat((tokens, column), dim=1)
            token = column.squeeze(1)
            if (token == END).all():
                break
        return tokens, tokens.size(1)

    @torch.no_grad()
    def grows_in_front(self, token: Tensor, h: Tensor, steps: int):
        tokens = token[:, None]
        for _ in range(steps):
            logits, h = self.step(token, h)
            token = logits.argmax(-1)
            tokens = torch.cat([token[:, None], tokens], dim=1)
            if (token == END).all():
                break
        return tokens

    @torch.no_grad()
    def grows_and_is_read(self, token: Tensor, h: Tensor, steps: int):
        tokens = token[:, None]
        for _ in range(steps):
            logits, h = self.step(tokens[:, -1], h)
            tokens = torch.cat([tokens, logits.argmax(-1, keepdim=True)], dim=-1)
            if (tokens == END).any(dim=1).all():
                break
        return tokens

    @torch.no_grad()
    def grows_from_nothing(self, token: Tensor, h: Tensor, steps: int):
        tokens = torch.empty(0, dtype=torch.int32)
        for _ in range(steps):
            logits, h = self.step(token, h)
            token = logits.argmax(-1)
            tokens = torch.cat([tokens, token.unsqueeze(0)])
            if (token == END).all():
                break
        return tokens

    @torch.no_grad()
    def runs_twice(self, token: Tensor, h: Tensor, steps: int):
        done, found = torch.zeros_like(token, dtype=torch.bool), []
        for _ in range(2):
            tokens = [token]
            for _ in range(steps):
                logits, h = self.step(token, h)
                token = logits.argmax(-1)
                tokens.append(token)
                done |= token == END
                if done.all():
                    break
            found.append(torch.stack(tokens))
        return found, done

    @torch.no_grad()
    def stacks_only_perhaps(self, token: Tensor, h: Tensor, steps: int):
        tokens = []
        for _ in range(steps):
            logits, h = self.step(token, h)
            token = logits.argmax(-1)
            tokens.append(token)
            if (token == END).all():
                break
        return torch.stack(tokens) if steps > 1 else None

    @torch.no_grad()
    def called_without_gradients(self, token: Tensor, h: Tensor, steps: int):
        return self.unrolled(token, h, steps)

    def unrolled(self, token: Tensor, h: Tensor, steps: int):
        tokens = []
        for _ in range(steps):
            logits, h = self.step(token, h)
            token = logits.argmax(-1)
            tokens.append(token)
            if (token == END).all():
                break
        return torch.stack(tokens)

    @torch.no_grad()
    def has_names_that_a_fix_would_take(self, token: Tensor, h: Tensor, steps: int):
        step, carried, more_tokens, ended, index = self.step, 1, 2, 3, 4
        tokens = [token]
        for t in range(1, steps):
            logits, h = step(token, h * t)
            token = logits.argmax(-1)
            if (token == END).all():
                break
            tokens.append(token)
        return torch.stack(tokens), carried, more_tokens, ended, index

    @torch.no_grad()
    def draws_behind_the_test(self, token: Tensor, h: Tensor, steps: int):
        tokens = []
        for _ in range(steps):
            logits, h = self.step(token, h)
            token = logits.argmax(-1)
            tokens.append(token)
            if (token == END).all():
                break
            h = h + torch.rand_like(h)
        return torch.stack(tokens), torch.rand(1)

    @torch.no_grad()
    def collects_numbers_of_the_host(self, token: Tensor, h: Tensor, steps: int):
        tokens, lengths, numbers = [], [], []
        for t in range(steps):
            logits, h = self.step(token, h)
            token = logits.argmax(-1)
            tokens.append(token)
            lengths.append(t)
            numbers.append(float(t))
            if (token == END).all():
                break
        return torch.stack(tokens), lengths, numbers
