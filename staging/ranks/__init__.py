"""The processes that stage together: who they are, how they talk, and how they end together."""
