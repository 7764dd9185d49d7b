# bash completion for tubectl. Install as /usr/share/bash-completion/completions/tubectl, or: source <(tubectl completion bash)
_tubectl() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} verb= sub= i
  local verbs="run profile proxy ping ps status stat copies gpu mem store topo limit doctor placement completion"
  for ((i = 1; i < COMP_CWORD; i++)); do
    case ${COMP_WORDS[i]} in
      -w|--workflow|-f|--function|-g|--group|--gpus|--backend|--copy-policy|--priority|--memory-mode|--on-fault|--memory|--function-memory|--each|--gpu|--slo-ms|--infer-ms|--sm-percent|--weight|--share-store|--get|--watch|--last|-n|--top|--program|--topology|--pattern|--pass|--share|--busy|--score|--links|--svg) ((i++)) ;;
      --) [[ $verb == run || $verb == profile ]] && { COMPREPLY=($(compgen -c -- "$cur") $(compgen -f -- "$cur")); return; } ;;
      -*) ;;
      *) if [[ -z $verb ]]; then verb=${COMP_WORDS[i]}; elif [[ -z $sub ]]; then sub=${COMP_WORDS[i]}; fi ;;
    esac
  done
  case $prev in
    -w|--workflow) COMPREPLY=($(compgen -W "$(tubectl proxy list --names 2>/dev/null)" -- "$cur")); return ;;
    --backend) COMPREPLY=($(compgen -W "auto driver sim" -- "$cur")); return ;;
    --on-fault) COMPREPLY=($(compgen -W "wait end" -- "$cur")); return ;;
    --priority) COMPREPLY=($(compgen -W "high normal low" -- "$cur")); return ;;
    --memory-mode) COMPREPLY=($(compgen -W "whole lazy" -- "$cur")); return ;;
    --copy-policy) COMPREPLY=($(compgen -W "arrival round-robin rates deadlines" -- "$cur")); return ;;
    --program|--pattern|--svg) COMPREPLY=($(compgen -f -- "$cur")); return ;;
    --topology) COMPREPLY=($(compgen -W "1x dgx-v100 hgx-h200 4xa10" -- "$cur") $(compgen -f -- "$cur")); return ;;
    --score) COMPREPLY=($(compgen -W "time aggregated preserved" -- "$cur")); return ;;
    --links) COMPREPLY=($(compgen -W "direct paths" -- "$cur")); return ;;
    -f|--function|--gpus|--memory|--function-memory|--each|--gpu|--slo-ms|--infer-ms|--sm-percent|--weight|--share-store|--get|--watch|--last|-n|--top|--pass|--share|--busy) return ;;
  esac
  local words=
  case $verb in
    '') words="$verbs --help --version" ;;
    run) words="--workflow --function --gpus --backend --copy-policy --memory --slo-ms --infer-ms --sm-percent --priority --memory-mode --slices --hang-timeout --on-fault --no-start --json --help --" ;;
    profile) words="--function --gpus --backend --json --help --" ;;
    proxy)
      case $sub in
        '') words="start stop list --help" ;;
        start) words="--workflow --gpus --backend --copy-policy --memory --function-memory --weight --slices --hang-timeout --share-store --verify-shared --on-fault --json --help" ;;
        stop) words="--workflow --all --json --help" ;;
        list) words="--names --json --help" ;;
      esac ;;
    ping) words="--workflow --json --help" ;;
    ps) words="--workflow --wide --json --help" ;;
    status) words="--workflow --json --help" ;;
    stat) words="--workflow --function --top --json --help" ;;
    copies) words="--workflow --function --watch --json --help" ;;
    gpu) words="--workflow --watch --json --help" ;;
    mem) words="--workflow --function --watch --last --json --help" ;;
    store) words="--workflow --group --get --watch --json --help" ;;
    topo) words="--workflow --topology --svg --json --help" ;;
    limit) words="--workflow --function --memory --gpu --each --json --help" ;;
    doctor) words="--program --json --help" ;;
    placement) words="--topology --pattern --pass --share --busy --score --links --json --help" ;;
    completion) words="bash zsh --help" ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
}
complete -F _tubectl tubectl
