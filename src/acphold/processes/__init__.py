"""Starting, guarding and ending programs; how one ended, in words. The only launcher."""
