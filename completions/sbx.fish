# fish completion for sbx
# Made by docs/generate.py from the tables in the code: change those.

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
        case run
            set valued --profile --policy --read --modify --deny --net --timeout --grace --cpu --memory --pids --nofile --max-stdout --max-stderr --env --cwd --json --report
        case sh
            set valued --profile --policy --read --modify --deny --net --timeout --grace --cpu --memory --pids --nofile --max-stdout --max-stderr --env --cwd --json --report
        case explain
            set valued --profile --policy --net
        case check
            set valued 
        case profiles
            set valued --policy
        case plan
            set valued --profile --policy --read --modify --deny --net --timeout --grace --cpu --memory --pids --nofile --max-stdout --max-stderr --env --cwd --platform --format
        case learn
            set valued --profile --policy --net --timeout --env
        case init
            set valued 
        case trust
            set valued 
        case audit
            set valued --last
        case batch
            set valued --jobs --out --engine --profile --policy --timeout
        case doctor
            set valued 
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
    if not contains -- $argv[1] run sh plan learn
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
complete -c sbx -n __sbx_first -x -a run -d 'Run a command under a policy that the kernel enforces'
complete -c sbx -n '__sbx_at run options' -l profile -x -a '(__sbx_profiles)' -d 'The profile to run under (default: unrestricted)'
complete -c sbx -n '__sbx_at run options' -l policy -x -a '(__fish_complete_suffix .yaml)' -d 'Use FILE in place of the workspace\'s sbx.yaml; naming it is consent'
complete -c sbx -n '__sbx_at run options' -l read -r -F -d 'Also allow reading RULE, for this run'
complete -c sbx -n '__sbx_at run options' -l modify -r -F -d 'Also allow reading and modifying RULE, for this run'
complete -c sbx -n '__sbx_at run options' -l deny -r -F -d 'Deny reading and modifying RULE, for this run'
complete -c sbx -n '__sbx_at run options' -l net -x -a 'none host' -d 'What the command may reach (default: none)'
complete -c sbx -n '__sbx_at run options' -l partial -d 'Run even if something cannot be enforced, and report what'
complete -c sbx -n '__sbx_at run options' -l timeout -x -d 'Wall-clock limit (30, 30s, 5m, 1h30m, 500ms)'
complete -c sbx -n '__sbx_at run options' -l grace -x -d 'Time between the first signal and SIGKILL (default: 5s)'
complete -c sbx -n '__sbx_at run options' -l cpu -x -d 'CPU time of the whole tree'
complete -c sbx -n '__sbx_at run options' -l memory -x -d 'Memory of the whole tree (512MiB, 512M, 1GB)'
complete -c sbx -n '__sbx_at run options' -l pids -x -d 'Processes and threads at once'
complete -c sbx -n '__sbx_at run options' -l nofile -x -d 'Open files of each process'
complete -c sbx -n '__sbx_at run options' -l max-stdout -x -d 'Cut standard output after SIZE'
complete -c sbx -n '__sbx_at run options' -l max-stderr -x -d 'Cut standard error after SIZE'
complete -c sbx -n '__sbx_at run options' -l env -x -a '(set -nx)' -d 'Pass NAME on, or set it'
complete -c sbx -n '__sbx_at run options' -l env-all -d 'Pass the whole environment on'
complete -c sbx -n '__sbx_at run options' -l cwd -x -a '(__fish_complete_directories)' -d 'Start in DIR'
complete -c sbx -n '__sbx_at run options' -l no-tty -d 'Never give the command the terminal'
complete -c sbx -n '__sbx_at run options' -l keep-inner-sandbox -d 'Leave a coding agent\'s own sandbox switched on'
complete -c sbx -n '__sbx_at run options' -l trace -d 'Tell every denial, with the rule that decided'
complete -c sbx -n '__sbx_at run options' -l json -r -F -d 'Write the result to FILE as JSON'
complete -c sbx -n '__sbx_at run options' -l report -x -a 'auto always never' -d 'When to print the annotated result (default: auto)'
complete -c sbx -n '__sbx_at run options' -l no-audit -d 'Write no audit record'
complete -c sbx -n '__sbx_at run options' -l verbose -d 'Say what sbx does, on standard error'
complete -c sbx -n '__sbx_at run options' -l help -d 'Print help and exit'
complete -c sbx -n '__sbx_at run options' -x -a '(__fish_complete_command)'
complete -c sbx -n '__sbx_at run command' -x -a '(__sbx_rest)'
complete -c sbx -n __sbx_first -x -a sh -d 'The same through /bin/sh: a shell for Makefiles and CI'
complete -c sbx -n '__sbx_at sh options' -l profile -x -a '(__sbx_profiles)' -d 'The profile to run under (default: unrestricted)'
complete -c sbx -n '__sbx_at sh options' -l policy -x -a '(__fish_complete_suffix .yaml)' -d 'Use FILE in place of the workspace\'s sbx.yaml; naming it is consent'
complete -c sbx -n '__sbx_at sh options' -l read -r -F -d 'Also allow reading RULE, for this run'
complete -c sbx -n '__sbx_at sh options' -l modify -r -F -d 'Also allow reading and modifying RULE, for this run'
complete -c sbx -n '__sbx_at sh options' -l deny -r -F -d 'Deny reading and modifying RULE, for this run'
complete -c sbx -n '__sbx_at sh options' -l net -x -a 'none host' -d 'What the command may reach (default: none)'
complete -c sbx -n '__sbx_at sh options' -l partial -d 'Run even if something cannot be enforced, and report what'
complete -c sbx -n '__sbx_at sh options' -l timeout -x -d 'Wall-clock limit (30, 30s, 5m, 1h30m, 500ms)'
complete -c sbx -n '__sbx_at sh options' -l grace -x -d 'Time between the first signal and SIGKILL (default: 5s)'
complete -c sbx -n '__sbx_at sh options' -l cpu -x -d 'CPU time of the whole tree'
complete -c sbx -n '__sbx_at sh options' -l memory -x -d 'Memory of the whole tree (512MiB, 512M, 1GB)'
complete -c sbx -n '__sbx_at sh options' -l pids -x -d 'Processes and threads at once'
complete -c sbx -n '__sbx_at sh options' -l nofile -x -d 'Open files of each process'
complete -c sbx -n '__sbx_at sh options' -l max-stdout -x -d 'Cut standard output after SIZE'
complete -c sbx -n '__sbx_at sh options' -l max-stderr -x -d 'Cut standard error after SIZE'
complete -c sbx -n '__sbx_at sh options' -l env -x -a '(set -nx)' -d 'Pass NAME on, or set it'
complete -c sbx -n '__sbx_at sh options' -l env-all -d 'Pass the whole environment on'
complete -c sbx -n '__sbx_at sh options' -l cwd -x -a '(__fish_complete_directories)' -d 'Start in DIR'
complete -c sbx -n '__sbx_at sh options' -l no-tty -d 'Never give the command the terminal'
complete -c sbx -n '__sbx_at sh options' -l keep-inner-sandbox -d 'Leave a coding agent\'s own sandbox switched on'
complete -c sbx -n '__sbx_at sh options' -l trace -d 'Tell every denial, with the rule that decided'
complete -c sbx -n '__sbx_at sh options' -l json -r -F -d 'Write the result to FILE as JSON'
complete -c sbx -n '__sbx_at sh options' -l report -x -a 'auto always never' -d 'When to print the annotated result (default: auto)'
complete -c sbx -n '__sbx_at sh options' -l no-audit -d 'Write no audit record'
complete -c sbx -n '__sbx_at sh options' -l verbose -d 'Say what sbx does, on standard error'
complete -c sbx -n '__sbx_at sh options' -l help -d 'Print help and exit'
complete -c sbx -n '__sbx_at sh options' -x -a '(__fish_complete_command)'
complete -c sbx -n '__sbx_at sh command' -x -a '(__sbx_rest)'
complete -c sbx -n __sbx_first -x -a explain -d 'Say why a path is allowed or denied, and what would change it'
complete -c sbx -n '__sbx_at explain options' -l profile -x -a '(__sbx_profiles)' -d 'The profile to ask about (default: unrestricted)'
complete -c sbx -n '__sbx_at explain options' -l policy -x -a '(__fish_complete_suffix .yaml)' -d 'Use FILE in place of the workspace\'s sbx.yaml'
complete -c sbx -n '__sbx_at explain options' -l read -d 'Only about reading'
complete -c sbx -n '__sbx_at explain options' -l modify -d 'Only about modifying'
complete -c sbx -n '__sbx_at explain options' -l last -d 'Explain what the last run in this workspace was denied'
complete -c sbx -n '__sbx_at explain options' -l net -x -d 'Explain whether HOST:PORT may be reached'
complete -c sbx -n '__sbx_at explain options' -l json -d 'Print JSON'
complete -c sbx -n '__sbx_at explain options' -l help -d 'Print help and exit'
complete -c sbx -n '__sbx_at explain options' -F
complete -c sbx -n __sbx_first -x -a check -d 'Validate and lint policies, and run the tests they contain'
complete -c sbx -n '__sbx_at check options' -l no-tests -d 'Do not run the policy\'s own tests'
complete -c sbx -n '__sbx_at check options' -l schema -d 'Print the JSON Schema of policies, for editors, and check nothing'
complete -c sbx -n '__sbx_at check options' -l json -d 'Print JSON'
complete -c sbx -n '__sbx_at check options' -l help -d 'Print help and exit'
complete -c sbx -n '__sbx_at check options' -x -a '(__fish_complete_suffix .yaml)'
complete -c sbx -n __sbx_first -x -a profiles -d 'List the profiles in force, or show the effective rules of one'
complete -c sbx -n '__sbx_at profiles options' -l policy -x -a '(__fish_complete_suffix .yaml)' -d 'Use FILE in place of the workspace\'s sbx.yaml'
complete -c sbx -n '__sbx_at profiles options' -l names -d 'Print the names alone, one a line'
complete -c sbx -n '__sbx_at profiles options' -l json -d 'Print JSON'
complete -c sbx -n '__sbx_at profiles options' -l help -d 'Print help and exit'
complete -c sbx -n '__sbx_at profiles options; and not __fish_seen_subcommand_from list show' -x -a 'list show'
complete -c sbx -n '__fish_seen_subcommand_from show' -x -a '(__sbx_profiles)'
complete -c sbx -n __sbx_first -x -a plan -d 'Say what would be done for a command, without doing it'
complete -c sbx -n '__sbx_at plan options' -l profile -x -a '(__sbx_profiles)' -d 'The profile to run under (default: unrestricted)'
complete -c sbx -n '__sbx_at plan options' -l policy -x -a '(__fish_complete_suffix .yaml)' -d 'Use FILE in place of the workspace\'s sbx.yaml; naming it is consent'
complete -c sbx -n '__sbx_at plan options' -l read -r -F -d 'Also allow reading RULE, for this run'
complete -c sbx -n '__sbx_at plan options' -l modify -r -F -d 'Also allow reading and modifying RULE, for this run'
complete -c sbx -n '__sbx_at plan options' -l deny -r -F -d 'Deny reading and modifying RULE, for this run'
complete -c sbx -n '__sbx_at plan options' -l net -x -a 'none host' -d 'What the command may reach (default: none)'
complete -c sbx -n '__sbx_at plan options' -l partial -d 'Run even if something cannot be enforced, and report what'
complete -c sbx -n '__sbx_at plan options' -l timeout -x -d 'Wall-clock limit (30, 30s, 5m, 1h30m, 500ms)'
complete -c sbx -n '__sbx_at plan options' -l grace -x -d 'Time between the first signal and SIGKILL (default: 5s)'
complete -c sbx -n '__sbx_at plan options' -l cpu -x -d 'CPU time of the whole tree'
complete -c sbx -n '__sbx_at plan options' -l memory -x -d 'Memory of the whole tree (512MiB, 512M, 1GB)'
complete -c sbx -n '__sbx_at plan options' -l pids -x -d 'Processes and threads at once'
complete -c sbx -n '__sbx_at plan options' -l nofile -x -d 'Open files of each process'
complete -c sbx -n '__sbx_at plan options' -l max-stdout -x -d 'Cut standard output after SIZE'
complete -c sbx -n '__sbx_at plan options' -l max-stderr -x -d 'Cut standard error after SIZE'
complete -c sbx -n '__sbx_at plan options' -l env -x -a '(set -nx)' -d 'Pass NAME on, or set it'
complete -c sbx -n '__sbx_at plan options' -l env-all -d 'Pass the whole environment on'
complete -c sbx -n '__sbx_at plan options' -l cwd -x -a '(__fish_complete_directories)' -d 'Start in DIR'
complete -c sbx -n '__sbx_at plan options' -l platform -x -a 'linux macos windows' -d 'Plan for this platform (default: this one)'
complete -c sbx -n '__sbx_at plan options' -l format -x -a 'text json sbpl bwrap systemd' -d 'How to print it (default: text)'
complete -c sbx -n '__sbx_at plan options' -l json -d 'Print JSON'
complete -c sbx -n '__sbx_at plan options' -l help -d 'Print help and exit'
complete -c sbx -n '__sbx_at plan options' -x -a '(__fish_complete_command)'
complete -c sbx -n '__sbx_at plan command' -x -a '(__sbx_rest)'
complete -c sbx -n __sbx_first -x -a learn -d 'Run a command, see what it needs, and propose the smallest profile for it'
complete -c sbx -n '__sbx_at learn options' -l profile -x -a '(__sbx_profiles)' -d 'The profile to extend, or a new one\'s name (default: learned)'
complete -c sbx -n '__sbx_at learn options' -l write -d 'Write the proposal to sbx.yaml, and approve it'
complete -c sbx -n '__sbx_at learn options' -l policy -x -a '(__fish_complete_suffix .yaml)' -d 'Use FILE in place of the workspace\'s sbx.yaml, and propose for it'
complete -c sbx -n '__sbx_at learn options' -l net -x -a 'none host' -d 'What the command may reach (default: none)'
complete -c sbx -n '__sbx_at learn options' -l timeout -x -d 'Wall-clock limit (30, 30s, 5m, 1h30m, 500ms)'
complete -c sbx -n '__sbx_at learn options' -l env -x -a '(set -nx)' -d 'Pass NAME on, or set it'
complete -c sbx -n '__sbx_at learn options' -l env-all -d 'Pass the whole environment on'
complete -c sbx -n '__sbx_at learn options' -l help -d 'Print help and exit'
complete -c sbx -n '__sbx_at learn options' -x -a '(__fish_complete_command)'
complete -c sbx -n '__sbx_at learn command' -x -a '(__sbx_rest)'
complete -c sbx -n __sbx_first -x -a init -d 'Write a starter policy that fits this folder, and approve it'
complete -c sbx -n '__sbx_at init options' -l print -d 'Print it instead of writing it'
complete -c sbx -n '__sbx_at init options' -l help -d 'Print help and exit'
complete -c sbx -n __sbx_first -x -a trust -d 'Approve the content of a workspace\'s policy'
complete -c sbx -n '__sbx_at trust options' -l list -d 'List what was approved'
complete -c sbx -n '__sbx_at trust options' -l forget -d 'Withdraw the approval'
complete -c sbx -n '__sbx_at trust options' -l help -d 'Print help and exit'
complete -c sbx -n '__sbx_at trust options' -x -a '(__fish_complete_suffix .yaml)'
complete -c sbx -n __sbx_first -x -a audit -d 'Read the audit log: what ran, under which profile, how it ended, what was denied'
complete -c sbx -n '__sbx_at audit options' -l denied -d 'Only runs that were denied something'
complete -c sbx -n '__sbx_at audit options' -l last -x -a 'all' -d 'The last N records (default: 20)'
complete -c sbx -n '__sbx_at audit options' -l json -d 'Print JSON'
complete -c sbx -n '__sbx_at audit options' -l help -d 'Print help and exit'
complete -c sbx -n __sbx_first -x -a batch -d 'Run many commands, each in a sandbox of its own'
complete -c sbx -n '__sbx_at batch options' -l jobs -x -d 'How many run at once (default: one for each processor)'
complete -c sbx -n '__sbx_at batch options' -l out -r -F -d 'Write results to FILE (default: standard output)'
complete -c sbx -n '__sbx_at batch options' -l resume -d 'Skip the jobs that have a result in FILE already'
complete -c sbx -n '__sbx_at batch options' -l engine -x -a 'local' -d 'Where the jobs run (default: local)'
complete -c sbx -n '__sbx_at batch options' -l profile -x -a '(__sbx_profiles)' -d 'The profile of jobs that name none'
complete -c sbx -n '__sbx_at batch options' -l policy -x -a '(__fish_complete_suffix .yaml)' -d 'The policy of jobs that name none'
complete -c sbx -n '__sbx_at batch options' -l timeout -x -d 'The wall-clock limit of jobs that name none'
complete -c sbx -n '__sbx_at batch options' -l help -d 'Print help and exit'
complete -c sbx -n __sbx_first -x -a doctor -d 'Say what this machine can enforce, and what to do about the rest'
complete -c sbx -n '__sbx_at doctor options' -l json -d 'Print JSON'
complete -c sbx -n '__sbx_at doctor options' -l help -d 'Print help and exit'
