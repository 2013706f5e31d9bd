# fish completion for sbx
@note@

function __sbx_profiles
    set -l words (commandline -opc)
    set -l policy
    if set -l at (contains -i -- --policy $words)
        set policy --policy $words[(math $at + 1)]
    end
    command $words[1] profiles list --names $policy 2>/dev/null
end

function __sbx_first
    test (count (commandline -opc)) -eq 1
end

# Where the command that is to be run starts, as an index; nothing while the options last.
function __sbx_start
    set -l words (commandline -opc)
    set -l valued
    switch $words[2]
@valued@
    end
    set -l i 3
    while test $i -le (count $words)
        set -l word $words[$i]
        if test "$word" = --
            echo (math $i + 1)
            return
        else if contains -- $word $valued
            set i (math $i + 2)
        else if string match -q -- '-*' $word
            set i (math $i + 1)
        else
            echo $i
            return
        end
    end
end

# __sbx_at COMMAND options|command: is this COMMAND of sbx, and which part of it?
function __sbx_at
    set -l words (commandline -opc)
    test "$words[2]" = "$argv[1]"; or return 1
    if not contains -- $argv[1] @takes_all@
        test $argv[2] = options
        return
    end
    set -l start (__sbx_start)
    if test -n "$start"
        test $argv[2] = command
    else
        test $argv[2] = options
    end
end

# What completes the command that is to be run.
function __sbx_rest
    set -l words (commandline -opc)
    set -l rest $words[(__sbx_start)..]
    complete -C (string join ' ' -- (string escape -- $rest) (commandline -ct))
end

complete -c sbx -f
complete -c sbx -n __sbx_first -l help -d 'Print an overview'
complete -c sbx -n __sbx_first -l version -d 'Print the version'
@completions@
