"""Starting, guarding and ending programs; how one ended, in words. The only launcher.

`acphold wrap` starts its agent before it imports anything else. So `program`, and what it needs,
imports neither asyncio nor what takes milliseconds besides: contextlib three, signal two.
"""
