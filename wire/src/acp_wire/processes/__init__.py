"""The launcher: starts, guards and ends programs, and describes how one ended. There is no other.

`acphold wrap` starts its agent before it imports anything else. So `program`, and its imports, use
neither asyncio nor anything else that takes milliseconds: contextlib three, signal two.
"""
