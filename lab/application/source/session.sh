# A session of sshd: each line of its input is a request, `cpu N` counts so far and `wait S` sleeps so
# many seconds. Each is counted at the descriptor 3, a named pipe, and answered with a line.
exec 3<>"$1"
while read -r work much; do
	echo + >&3
	case $work in
	cpu)
		i=0
		while [ $i -lt "$much" ]; do i=$((i + 1)); done
		;;
	wait) sleep "$much" ;;
	esac
	echo - >&3
	echo ok
done
