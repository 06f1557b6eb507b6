"""The vocabulary of Lexigram: protocols, value types and errors, one folder per domain."""
