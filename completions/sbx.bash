# bash completion for sbx
# Made by docs/generate.py from the tables in the code: change those.

# What completes what: options of a command, those of them that take a value, and what its other words are.
_sbx_table() {
  case $1 in
    run) options='--profile --policy --read --modify --deny --net --partial --timeout --grace --cpu --memory --pids --nofile --max-stdout --max-stderr --env --env-all --cwd --no-tty --keep-inner-sandbox --trace --json --report --no-audit --verbose --help' valued=' --profile --policy --read --modify --deny --net --timeout --grace --cpu --memory --pids --nofile --max-stdout --max-stderr --env --cwd --json --report ' words=command ;;
    sh) options='--profile --policy --read --modify --deny --net --partial --timeout --grace --cpu --memory --pids --nofile --max-stdout --max-stderr --env --env-all --cwd --no-tty --keep-inner-sandbox --trace --json --report --no-audit --verbose --help' valued=' --profile --policy --read --modify --deny --net --timeout --grace --cpu --memory --pids --nofile --max-stdout --max-stderr --env --cwd --json --report ' words=command ;;
    explain) options='--profile --policy --read --modify --last --net --json --help' valued=' --profile --policy --net ' words=files ;;
    check) options='--no-tests --schema --json --help' valued='  ' words=policies ;;
    profiles) options='--policy --names --json --help' valued=' --policy ' words=verbs ;;
    plan) options='--profile --policy --read --modify --deny --net --partial --timeout --grace --cpu --memory --pids --nofile --max-stdout --max-stderr --env --env-all --cwd --platform --format --json --help' valued=' --profile --policy --read --modify --deny --net --timeout --grace --cpu --memory --pids --nofile --max-stdout --max-stderr --env --cwd --platform --format ' words=command ;;
    learn) options='--profile --write --policy --net --timeout --env --env-all --help' valued=' --profile --policy --net --timeout --env ' words=command ;;
    init) options='--print --help' valued='  ' words=nothing ;;
    trust) options='--list --forget --help' valued='  ' words=policies ;;
    audit) options='--denied --last --json --help' valued=' --last ' words=nothing ;;
    batch) options='--jobs --out --resume --engine --profile --policy --timeout --help' valued=' --jobs --out --engine --profile --policy --timeout ' words=nothing ;;
    doctor) options='--json --help' valued='  ' words=nothing ;;
    *) options= valued= words=nothing ;;
  esac
}

_sbx_value() {
  case $1:$2 in
    run:--profile) value=profiles ;;
    run:--policy) value=policies ;;
    run:--read) value=files ;;
    run:--modify) value=files ;;
    run:--deny) value=files ;;
    run:--net) value='none host' ;;
    run:--timeout) value=nothing ;;
    run:--grace) value=nothing ;;
    run:--cpu) value=nothing ;;
    run:--memory) value=nothing ;;
    run:--pids) value=nothing ;;
    run:--nofile) value=nothing ;;
    run:--max-stdout) value=nothing ;;
    run:--max-stderr) value=nothing ;;
    run:--env) value=variables ;;
    run:--cwd) value=folders ;;
    run:--json) value=files ;;
    run:--report) value='auto always never' ;;
    sh:--profile) value=profiles ;;
    sh:--policy) value=policies ;;
    sh:--read) value=files ;;
    sh:--modify) value=files ;;
    sh:--deny) value=files ;;
    sh:--net) value='none host' ;;
    sh:--timeout) value=nothing ;;
    sh:--grace) value=nothing ;;
    sh:--cpu) value=nothing ;;
    sh:--memory) value=nothing ;;
    sh:--pids) value=nothing ;;
    sh:--nofile) value=nothing ;;
    sh:--max-stdout) value=nothing ;;
    sh:--max-stderr) value=nothing ;;
    sh:--env) value=variables ;;
    sh:--cwd) value=folders ;;
    sh:--json) value=files ;;
    sh:--report) value='auto always never' ;;
    explain:--profile) value=profiles ;;
    explain:--policy) value=policies ;;
    explain:--net) value=nothing ;;
    profiles:--policy) value=policies ;;
    plan:--profile) value=profiles ;;
    plan:--policy) value=policies ;;
    plan:--read) value=files ;;
    plan:--modify) value=files ;;
    plan:--deny) value=files ;;
    plan:--net) value='none host' ;;
    plan:--timeout) value=nothing ;;
    plan:--grace) value=nothing ;;
    plan:--cpu) value=nothing ;;
    plan:--memory) value=nothing ;;
    plan:--pids) value=nothing ;;
    plan:--nofile) value=nothing ;;
    plan:--max-stdout) value=nothing ;;
    plan:--max-stderr) value=nothing ;;
    plan:--env) value=variables ;;
    plan:--cwd) value=folders ;;
    plan:--platform) value='linux macos windows' ;;
    plan:--format) value='text json sbpl bwrap systemd' ;;
    learn:--profile) value=profiles ;;
    learn:--policy) value=policies ;;
    learn:--net) value='none host' ;;
    learn:--timeout) value=nothing ;;
    learn:--env) value=variables ;;
    audit:--last) value='all' ;;
    batch:--jobs) value=nothing ;;
    batch:--out) value=files ;;
    batch:--engine) value='local' ;;
    batch:--profile) value=profiles ;;
    batch:--policy) value=policies ;;
    batch:--timeout) value=nothing ;;
    *) value=nothing ;;
  esac
}

_sbx_profiles() {
  local i policy=()
  for ((i = 2; i < COMP_CWORD; i++)); do
    [[ ${COMP_WORDS[i]} == --policy ]] && policy=(--policy "${COMP_WORDS[i + 1]}")
  done
  "${COMP_WORDS[0]}" profiles list --names "${policy[@]}" 2>/dev/null
}

# Fill COMPREPLY for one kind of words; $1 is the kind, or the words themselves.
_sbx_reply() {
  case $1 in
    nothing) ;;
    files)
      compopt -o filenames 2>/dev/null
      mapfile -t COMPREPLY < <(compgen -f -- "$current")
      ;;
    folders)
      compopt -o filenames 2>/dev/null
      mapfile -t COMPREPLY < <(compgen -d -- "$current")
      ;;
    policies)
      compopt -o filenames 2>/dev/null
      local name
      while IFS= read -r name; do
        [[ -d $name || $name == *.yaml || $name == *.yml ]] && COMPREPLY+=("$name")
      done < <(compgen -f -- "$current")
      ;;
    profiles) mapfile -t COMPREPLY < <(compgen -W "$(_sbx_profiles)" -- "$current") ;;
    variables) mapfile -t COMPREPLY < <(compgen -e -- "$current") ;;
    command) mapfile -t COMPREPLY < <(compgen -c -- "$current") ;;
    verbs) mapfile -t COMPREPLY < <(compgen -W 'list show' -- "$current") ;;
    *) mapfile -t COMPREPLY < <(compgen -W "$1" -- "$current") ;;
  esac
}

_sbx() {
  local current=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]} options valued words value
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    _sbx_reply 'run sh explain check profiles plan learn init trust audit batch doctor --help --version'
    return
  fi
  _sbx_table "$command"

  # The word before, past an equals sign, which bash makes a word of its own.
  local before=$((COMP_CWORD - 1))
  [[ $current == = ]] && current=
  [[ ${COMP_WORDS[before]} == = ]] && before=$((before - 1))

  local i=2 word seen=
  while ((i < COMP_CWORD)); do
    word=${COMP_WORDS[i]}
    if [[ $word == -- ]]; then
      i=$((i + 1))
      seen=dashes
      break
    elif [[ $valued == *" $word "* ]]; then
      [[ ${COMP_WORDS[i + 1]} == = ]] && i=$((i + 1))
      if ((i + 1 >= COMP_CWORD)); then
        _sbx_value "$command" "$word"
        _sbx_reply "$value"
        return
      fi
      i=$((i + 2))
    elif [[ $word == -* ]]; then
      i=$((i + 1))
    else
      [[ $words == command ]] && break
      [[ $words == verbs && $word == show ]] && words=profiles
      [[ $words == verbs && $word == list ]] && words=nothing
      i=$((i + 1))
    fi
  done

  if [[ $words == command && $i -lt $COMP_CWORD ]]; then
    # Inside the command that is to be run: whatever completes it by itself.
    if declare -F _command_offset >/dev/null; then
      _command_offset "$i"
    else
      _sbx_reply files
    fi
  elif [[ $current == -* && -z $seen ]]; then
    _sbx_reply "$options"
  else
    _sbx_reply "$words"
  fi
}

complete -F _sbx sbx
