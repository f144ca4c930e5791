"""The intermediate representation: control flow graphs in SSA form, one a scope, built on first demand."""
