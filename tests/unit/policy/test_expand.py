"""Rule text to real places: anchors, variables, symlinks."""

from __future__ import annotations

import os
import re

import pytest

from sbx.errors import PolicyError
from sbx.policy.document import RunRules


def test_anchors(workspace, asking) -> None:
    asked = asking('read: ["plain/**", "./dotted/**", "~/mine/**", "/usr/share/**", "**/anywhere.txt"]')
    assert asked.reads("plain/x")
    assert asked.reads("dotted/x")
    assert asked.reads(workspace.home / "mine/x")
    assert asked.reads("/usr/share/x")
    assert asked.reads("deep/down/anywhere.txt")
    assert asked.reads("/anywhere.txt")
    assert not asked.reads("other")
    assert not asked.reads(workspace.home / "other")
    assert not asked.reads("plainly")


def test_a_rule_is_exactly_itself_and_two_stars_are_all_below(workspace, asking) -> None:
    asked = asking('read: ["a", "b/**"]')
    assert asked.reads("a")
    assert not asked.reads("a/x")
    assert asked.reads("b")
    assert asked.reads("b/x/y")


@pytest.mark.parametrize("name", ["a*b", "a?b", "[ab]", "{a,b}", "a\\b", "!a", "a b", "${X}", "é"])
def test_a_variables_value_is_literal(workspace, asking, name: str) -> None:
    asked = asking('read: ["${VALUE}/**", "./sub/${VALUE}"]', environ={"VALUE": name})
    assert asked.reads(f"{name}/x")
    assert asked.reads(f"sub/{name}")
    assert not asked.reads("aXb/x")
    assert not asked.reads("a/x")
    assert ("VALUE", name) in asked.profile.variables


def test_variables_and_defaults(workspace, asking) -> None:
    keys = 'read: ["${GIVEN:-./fallback}/**", "${MISSING:-./fallback}/**", "${EMPTY:-~/there}/*.c"]'
    asked = asking(keys, environ={"GIVEN": "/opt/given", "EMPTY": ""})
    assert asked.reads("/opt/given/x")
    assert asked.reads("fallback/x")
    assert asked.reads(workspace.home / "there/x.c")
    assert not asked.reads(workspace.home / "there/x.h")
    assert ("MISSING", None) in asked.profile.variables
    assert ("EMPTY", "") in asked.profile.variables


def test_a_backslash_takes_the_meaning_away(workspace, asking) -> None:
    asked = asking("read: ['\\!odd', '\\$\\{HOME\\}', '\\~x', 'a\\*']")
    assert asked.reads("!odd")
    assert asked.reads("./${HOME}")
    assert asked.reads("./~x")
    assert asked.reads("a*")
    assert not asked.reads("ab")


def test_negation_within_the_profile_and_its_undoing(asking) -> None:
    asked = asking('read: ["./**", "!./secret/**", "./secret/public"]')
    assert asked.reads("x")
    assert not asked.reads("secret/x")
    assert asked.reads("secret/public")


def test_a_prefix_that_is_a_symlink_means_its_target_and_the_link(workspace, asking) -> None:
    (workspace.root / "real").mkdir()
    (workspace.root / "link").symlink_to("real")
    asked = asking('read: ["./**"]\nmodify: ["./link/**"]')
    assert asked.modifies("real/x")
    assert asked.modifies("link/x")
    assert asked.modifies_itself("link")
    assert not asked.modifies("other")
    written, real = str(workspace.root / "link"), str(workspace.root / "real")
    assert (written, real) in asked.profile.resolved


def test_the_path_asked_about_is_decided_by_its_real_location(workspace, asking) -> None:
    workspace.write("secret/key")
    (workspace.root / "innocent").symlink_to("secret/key")
    (workspace.root / "folder").symlink_to("secret")
    asked = asking('read: ["./**", "!./secret/**"]')
    assert not asked.reads("innocent")
    assert not asked.reads("folder/key")
    assert not asked.reads("folder/not-there-yet")
    assert not asked.reads("x/../secret/key")


def test_loops_dangling_links_and_missing_paths(workspace, asking) -> None:
    (workspace.root / "loop").symlink_to("loop2")
    (workspace.root / "loop2").symlink_to("loop")
    (workspace.root / "dangling").symlink_to("secret/later")
    asked = asking('read: ["./**", "!./secret/**"]')
    assert not asked.reads("loop")
    assert not asked.reads("loop/x")
    assert not asked.reads("dangling")
    assert asked.reads("not/there/yet")


def test_dots_after_a_symlink_mean_the_targets_parent(workspace, asking) -> None:
    (workspace.root / "a/b").mkdir(parents=True)
    (workspace.root / "link").symlink_to("a/b")
    asked = asking('read: ["./link/../x"]')
    assert asked.reads("a/x")
    assert not asked.reads("x")


def test_a_neighbouring_folder_may_be_named(workspace, asking) -> None:
    asked = asking('read: ["../sibling/**"]')
    assert asked.reads(workspace.root.parent / "sibling/x")


def test_a_deny_covers_every_link_on_the_way(workspace, asking) -> None:
    """Replacing any link of the chain would put another file in the protected one's place."""
    workspace.write("three/file")
    (workspace.root / "two").symlink_to("three")
    (workspace.root / "one").symlink_to("two")
    asked = asking('read: ["./**"]\nmodify: ["./**"]', 'denyModify: ["one/file"]')
    assert not asked.modifies("three/file")
    assert not asked.modifies_itself("one")
    assert not asked.modifies_itself("two")
    assert asked.modifies("three/other")


def test_a_denied_loop_stays_denied(workspace, asking) -> None:
    (workspace.root / "loop").symlink_to("loop")
    asked = asking('read: ["./**"]\nmodify: ["./**"]', 'denyModify: ["loop"]')
    assert not asked.modifies_itself("loop")


class TestPlantedLinks:
    """A command of an earlier run may have put a symlink where a rule will look the next time."""

    def test_a_rule_that_leaves_the_workspace_through_one_is_refused(self, workspace, asking, tmp_path) -> None:
        target = tmp_path / "outside"
        target.mkdir()
        (workspace.root / "build").symlink_to(target)
        with pytest.raises(PolicyError) as caught:
            asking('read: ["./**"]\nmodify: ["./build/**"]')
        assert "leaves the workspace" in caught.value.message
        assert str(target) in caught.value.remedy
        assert caught.value.source is not None
        assert caught.value.source.line == 6

    @pytest.mark.parametrize("rule", ["./a/build/**", "a/build/x.o", "./a/*.c", "${WS}/a/**"])
    def test_in_the_middle_and_by_its_absolute_name_too(self, workspace, asking, tmp_path, rule: str) -> None:
        (tmp_path / "outside").mkdir()
        (workspace.root / "a").symlink_to(tmp_path / "outside")
        with pytest.raises(PolicyError, match="leaves the workspace"):
            asking(f'read: ["{rule}"]', environ={"WS": str(workspace.root)})

    def test_the_real_path_named_as_well_is_consent(self, workspace, asking, tmp_path) -> None:
        target = tmp_path / "outside"
        target.mkdir()
        (workspace.root / "build").symlink_to(target)
        options = RunRules(modify=(str(target) + "/**",))
        asked = asking('read: ["./**"]\nmodify: ["./build/**"]', options=options)
        assert asked.modifies(target / "x")
        assert asked.modifies("build/x")

    def test_the_private_folder_for_temporary_files_is_no_consent(self, workspace, asking, tmp_path) -> None:
        """That every profile has a private /tmp does not name what lies in the real one."""
        (workspace.root / "x").symlink_to("/tmp")
        with pytest.raises(PolicyError, match="leaves the workspace"):
            asking('read: ["./x/**"]')

    def test_negated_rules_follow_without_complaint(self, workspace, asking, tmp_path) -> None:
        (tmp_path / "outside").mkdir()
        (workspace.root / "a").symlink_to(tmp_path / "outside")
        asked = asking('read: ["./**", "!./a/**"]')
        assert not asked.reads("a/x")


def test_options_join_the_profile(workspace, asking) -> None:
    options = RunRules(read=("/opt/r/**",), modify=("/opt/m/**",), deny=("/opt/m/not",))
    asked = asking("read: []", options=options)
    assert asked.reads("/opt/r/x")
    assert not asked.modifies("/opt/r/x")
    assert asked.reads("/opt/m/x")
    assert asked.modifies("/opt/m/x")
    assert not asked.reads("/opt/m/not")
    assert not asked.modifies("/opt/m/not")


def test_a_bad_option_names_the_option(asking) -> None:
    with pytest.raises(PolicyError, match=r"^--read: rule 'src/': a rule cannot end with a slash; write 'src/\*\*'"):
        asking("read: []", options=RunRules(read=("src/",)))


def test_denies_of_the_home_hold_for_the_home_of_the_user_database(workspace, asking) -> None:
    """Under another $HOME (sudo, su, CI) the real one must not lie open."""
    import pwd

    real = os.path.realpath(pwd.getpwuid(os.getuid()).pw_dir)
    asked = asking('read: ["/**"]', 'denyRead: ["~/.private/**"]')
    assert not asked.reads(workspace.home / ".private/x")
    assert not asked.reads(os.path.join(real, ".private/x"))


def test_a_home_that_is_a_symlink(workspace, asking, tmp_path) -> None:
    (tmp_path / "home-link").symlink_to(workspace.home)
    asked = asking('read: ["~/x/**"]', environ={"HOME": str(tmp_path / "home-link")})
    assert asked.reads(workspace.home / "x/y")
    assert asked.reads(tmp_path / "home-link/x/y")


def test_what_was_looked_at_is_recorded_once_and_sorted(asking) -> None:
    profile = asking('read: ["./**", "./**"]', environ={"VIRTUAL_ENV": "/opt/venv"}).profile
    assert list(profile.resolved) == sorted(set(profile.resolved))
    assert dict(profile.variables)["VIRTUAL_ENV"] == "/opt/venv"
    assert "HOME" in dict(profile.variables)
    assert not any(re.match("SBX_PYTHON", name) for name, _ in profile.variables)
