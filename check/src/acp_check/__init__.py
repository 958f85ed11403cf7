"""The rules of ACP as runnable cases that show which of them an agent keeps."""
