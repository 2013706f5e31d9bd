# bash completion for sbx
@note@

# What completes what: options of a command, those of them that take a value, and what its other words are.
_sbx_table() {
  case $1 in
@tables@
    *) options= valued= words=nothing ;;
  esac
}

_sbx_value() {
  case $1:$2 in
@values@
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
    _sbx_reply '@commands@ --help --version'
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
