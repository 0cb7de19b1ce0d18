"""The processes that stage together: who they are, how they communicate, and how they end together."""
