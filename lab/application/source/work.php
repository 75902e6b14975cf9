<?php
// /work.php?cpu=US&wait=US takes so much CPU time, and then waits.
function spent() {
    $u = getrusage();
    return ($u['ru_utime.tv_sec'] + $u['ru_stime.tv_sec']) * 1e6 + $u['ru_utime.tv_usec'] + $u['ru_stime.tv_usec'];
}
$end = spent() + (int)($_GET['cpu'] ?? 0);
while (spent() < $end);
if (($wait = (int)($_GET['wait'] ?? 0)) > 0) {
    usleep($wait);
}
echo "ok";
