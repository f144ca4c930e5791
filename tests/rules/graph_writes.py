"""Small decoders that end by themselves, and traps in what they write to in place, and who sees it."""
# mypy: ignore-errors

import torch
from torch import Tensor, nn

END = 1
SHARED = torch.zeros(3, dtype=torch.bool)
LAST = None


class Decoder(nn.Module):
    def __init__(self, words=5, width=8):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.cell = nn.GRUCell(width, width)
        self.head = nn.Linear(width, words)
        self.drop = nn.Dropout(0.5)
        self.register_buffer("done", torch.zeros(3, dtype=torch.bool))
        self.cache = []

    def step(self, token, h):
        h = self.cell(self.embed(token), h)
        return self.head(h), h

    @torch.no_grad()
    def returns_what_is_carried(self, token: Tensor, h: Tensor, steps: int):
        done = torch.zeros_like(token, dtype=torch.bool)
        for _ in range(steps):
            logits, h = self.step(token, h)
            token = logits.argmax(-1)
            done |= token == END
            if done.all():
                break
        return done, done, token, h

    @torch.no_grad()
    def keeps_a_row_of_the_buffer(self, token: Tensor, h: Tensor, steps: int):
        tokens = torch.full((token.size(0), steps), END, device=token.device)
        row = tokens[0]
        for t in range(steps):
            logits, h = self.step(token, h)
            token = logits.argmax(-1)
            tokens[:, t] = token
            if (token == END).all():
                break
        return row

    @torch.no_grad()
    def takes_a_row_behind(self, token: Tensor, h: Tensor, steps: int):
        tokens = torch.full((token.size(0), steps), END, device=token.device)
        for t in range(steps):
            logits, h = self.step(token, h)
            token = logits.argmax(-1)
            tokens[:, t] = token
            if (token == END).all():
                break
        row = tokens[0]
        tokens[0] += 1
        return row, tokens[:, : t + 1]

    @torch.no_grad()
    def writes_to_the_callers(self, token: Tensor, h: Tensor, steps: int):
        for _ in range(steps):
            token[token == END] = 0
            logits, h = self.step(token, h)
            token = logits.argmax(-1)
            if (token == END).all():
                break
        return token

    @torch.no_grad()
    def writes_to_the_callers_state(self, token: Tensor, h: Tensor, steps: int):
        for _ in range(steps):
            logits, _ = self.step(token, h)
            token = logits.argmax(-1)
            h *= 0.9
            if (token == END).all():
                break
        return token, h

    @torch.no_grad()
    def writes_to_a_default(self, token: Tensor, h: Tensor, steps: int, done: Tensor = SHARED):
        for _ in range(steps):
            logits, h = self.step(token, h)
            token = logits.argmax(-1)
            done |= token == END
            if done.all():
                break
        return done.clone()

    @torch.no_grad()
    def writes_to_a_global(self, token: Tensor, h: Tensor, steps: int):
        done = SHARED
        for _ in range(steps):
            logits, h = self.step(token, h)
            token = logits.argmax(-1)
            done |= token == END
            if done.all():
                break
        return token

    @torch.no_grad()
    def writes_to_a_buffer(self, token: Tensor, h: Tensor, steps: int):
        for _ in range(steps):
            logits, h = self.step(token, h)
            token = logits.argmax(-1)
            self.done |= token == END
            if self.done.all():
                break
        return token

    @torch.no_grad()
    def writes_to_a_view_of_a_buffer(self, token: Tensor, h: Tensor, steps: int):
        done = self.done.view(-1)
        for _ in range(steps):
            logits, h = self.step(token, h)
            token = logits.argmax(-1)
            done |= token == END
            if done.all():
                break
        return token

    @torch.no_grad()
    def appends_to_the_model(self, token: Tensor, h: Tensor, steps: int):
        self.cache = []
        for _ in range(steps):
            logits, h = self.step(token, h)
            token = logits.argmax(-1)
            self.cache.append(token)
            if (token == END).all():
                break
        return torch.stack(self.cache)

    @torch.no_grad()
    def reads_a_local_behind(self, token: Tensor, h: Tensor, steps: int):
        tokens = []
        for _ in range(steps):
            logits, h = self.step(token, h)
            token = logits.argmax(-1)
            tokens.append(token)
            if (token == END).all():
                break
        return torch.stack(tokens, 1), logits

    @torch.no_grad()
    def deletes_a_local_behind(self, token: Tensor, h: Tensor, steps: int):
        tokens = []
        for _ in range(steps):
            logits, h = self.step(token, h)
            token = logits.argmax(-1)
            tokens.append(token)
            if (token == END).all():
                break
        del logits
        return torch.stack(tokens, 1)

    @torch.no_grad()
    def adds_to_a_local_behind(self, token: Tensor, h: Tensor, steps: int):
        tokens = []
        for _ in range(steps):
            logits, h = self.step(token, h)
            token = logits.argmax(-1)
            tokens.append(token)
            if (token == END).all():
                break
        token += 1
        return torch.stack(tokens, 1), token

    @torch.no_grad()
    def calls_a_function_inside(self, token: Tensor, h: Tensor, steps: int):
        def look():
            return token + 1

        tokens = []
        for _ in range(steps):
            logits, h = self.step(look() % 5, h)
            token = logits.argmax(-1)
            tokens.append(token)
            if (token == END).all():
                break
        return torch.stack(tokens, 1)

    @torch.no_grad()
    def appends_what_the_next_writes_to(self, token: Tensor, h: Tensor, steps: int):
        best = torch.zeros_like(token)
        bests = []
        for _ in range(steps):
            logits, h = self.step(token, h)
            token = logits.argmax(-1)
            best += token
            bests.append(best)
            if (token == END).all():
                break
        return torch.stack(bests), best

    @torch.no_grad()
    def appends_a_part_of_what_the_next_writes_to(self, token: Tensor, h: Tensor, steps: int):
        room = torch.zeros(3, 5, device=token.device)
        rows = []
        for _ in range(steps):
            logits, h = self.step(token, h)
            token = logits.argmax(-1)
            room += logits
            row = room[0]
            rows.append(row)
            if (token == END).all():
                break
        return torch.stack(rows)

    @torch.no_grad()
    def hands_on_what_it_writes_to(self, token: Tensor, h: Tensor, steps: int):
        now = torch.zeros_like(token)
        last = now
        for _ in range(steps):
            logits, h = self.step(token + 0 * last, h)
            token = logits.argmax(-1)
            last = now
            now += token
            if (last > 9).all():
                break
        return last, now

    @torch.no_grad()
    def writes_behind_the_test(self, token: Tensor, h: Tensor, steps: int):
        tokens = torch.full((token.size(0), steps), END, device=token.device)
        for t in range(steps):
            logits, h = self.step(token, h)
            token = logits.argmax(-1)
            if (token == END).all():
                break
            tokens[:, t] = token
        return tokens

    @torch.no_grad()
    def sets_what_is_tested_behind_the_test(self, token: Tensor, h: Tensor, steps: int):
        tokens = []
        for _ in range(steps):
            logits, h = self.step(token, h)
            token = logits.argmax(-1)
            tokens.append(token)
            if (token == END).all():
                break
            token = (token + 1) % 5
        return torch.stack(tokens)

    @torch.no_grad()
    def appends_and_then_writes(self, token: Tensor, h: Tensor, steps: int):
        done = torch.zeros_like(token, dtype=torch.bool)
        tokens = []
        for _ in range(steps):
            logits, h = self.step(token, h)
            token = logits.argmax(-1)
            tokens.append(token)
            token[done] = END
            done = done | (token == END)
            if done.all():
                break
        return torch.stack(tokens)

    @torch.no_grad()
    def scatters(self, token: Tensor, h: Tensor, steps: int):
        seen = torch.zeros(token.size(0), 5, device=token.device)
        lengths = torch.zeros_like(token)
        for _ in range(steps):
            logits, h = self.step(token, h)
            token = (logits - 9 * seen).argmax(-1)
            seen.scatter_(1, token.unsqueeze(1), 1.0)
            lengths.add_(1).clamp_(max=4)
            if seen[:, END].all():
                break
        return seen, lengths

    @torch.no_grad()
    def changes_type_in_place(self, token: Tensor, h: Tensor, steps: int):
        total = torch.zeros(token.size(0), dtype=torch.half, device=token.device)
        for _ in range(steps):
            logits, h = self.step(token, h)
            token = logits.argmax(-1)
            total += logits.amax(-1)
            if (token == END).all():
                break
        return total

    @torch.no_grad()
    def holds_a_number_at_first(self, token: Tensor, h: Tensor, steps: int):
        unfinished = 1
        for _ in range(steps):
            logits, h = self.step(token, h)
            token = logits.argmax(-1)
            unfinished *= (token != END).long()
            if unfinished.max() == 0:
                break
        return unfinished

    @torch.no_grad()
    def hands_itself_on(self, token: Tensor, h: Tensor, steps: int):
        done = torch.zeros_like(token, dtype=torch.bool)
        kept = [done]
        for _ in range(steps):
            logits, h = self.step(token, h)
            token = logits.argmax(-1)
            done |= token == END
            if done.all():
                break
        return kept

    @torch.no_grad()
    def swaps(self, token: Tensor, h: Tensor, steps: int):
        one, other = torch.zeros_like(token), torch.ones_like(token)
        for _ in range(steps):
            logits, h = self.step(token, h)
            token = logits.argmax(-1)
            one += token
            one, other = other, one
            if (token == END).all():
                break
        return one, other

    @torch.no_grad()
    def writes_to_what_it_appended_behind_the_test(self, token: Tensor, h: Tensor, steps: int):
        tokens = []
        for _ in range(steps):
            logits, h = self.step(token, h)
            token = logits.argmax(-1)
            tokens.append(token)
            if (token == END).all():
                break
            token[0] = 2
        return torch.stack(tokens)

    @torch.no_grad()
    def goes_on_in_an_outer_loop(self, token: Tensor, h: Tensor, steps: int):
        rounds = []
        for _ in range(2):
            tokens = []
            for _ in range(steps):
                logits, h = self.step(token, h)
                token = logits.argmax(-1)
                tokens.append(token)
                if (token == END).all():
                    break
            rounds.append(torch.stack(tokens))
        return rounds

    @torch.no_grad()
    def writes_out_of_sight_behind(self, token: Tensor, h: Tensor, steps: int):
        tokens = []
        for _ in range(steps):
            logits, h = self.step(token, h)
            token = logits.argmax(-1)
            tokens.append(token)
            if (token == END).all():
                break
        getattr(token, "zero_")()  # noqa: B009
        return torch.stack(tokens)

    @torch.no_grad()
    def writes_to_what_the_step_before_made(self, token: Tensor, h: Tensor, steps: int):
        tokens, last = [], None
        for _ in range(steps):
            if last is not None:
                row = last[0]
                row.add_(1)
            logits, h = self.step(token, h)
            token = logits.argmax(-1)
            last = token
            tokens.append(token)
            if (token == END).all():
                break
        return torch.stack(tokens)

    @torch.no_grad()
    def adds_to_the_data_behind(self, token: Tensor, h: Tensor, steps: int):
        tokens = []
        for _ in range(steps):
            logits, h = self.step(token, h)
            token = logits.argmax(-1)
            tokens.append(token)
            if (token == END).all():
                break
        token.data += 1
        return torch.stack(tokens)

    @torch.no_grad()
    def wipes_what_it_collects_by_another_name(self, token: Tensor, h: Tensor, steps: int):
        tokens = []
        others = tokens
        for _ in range(steps):
            list(map(torch.Tensor.zero_, others))
            logits, h = self.step(token, h)
            token = logits.argmax(-1)
            tokens.append(token)
            if (token == END).all():
                break
        return torch.stack(tokens)

    @torch.no_grad()
    def wipes_by_a_name_of_the_module(self, token: Tensor, h: Tensor, steps: int):
        tokens = []
        for _ in range(steps):
            logits, h = self.step(token, h)
            token = logits.argmax(-1)
            tokens.append(token)
            if (token == END).all():
                break
        globals()["LAST"] = token
        LAST.zero_()
        return torch.stack(tokens)

    @torch.no_grad()
    def wipes_by_code_in_a_string(self, token: Tensor, h: Tensor, steps: int):
        tokens = []
        for _ in range(steps):
            logits, h = self.step(token, h)
            token = logits.argmax(-1)
            tokens.append(token)
            if (token == END).all():
                break
        exec("given.zero_()", {"given": token})
        return torch.stack(tokens)
