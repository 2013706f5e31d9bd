"""What the launch side is told of each operation."""

from __future__ import annotations

from capabilities import requires

from sbx.backends.linux import only_roots_own


@requires(root=False)
def test_folders_that_only_root_can_change() -> None:
    assert only_roots_own("/usr/lib", {})
    assert not only_roots_own("/tmp", {})


@requires(root=True)
def test_to_root_no_folder_is_safe_from_its_own_commands() -> None:
    """A command of an earlier run may have put a symlink into any of them."""
    assert not only_roots_own("/usr/lib", {})
