#!/usr/bin/perl

# The commands that search for defects work, and find none in a few seconds: a
# run of chaos (make chaos), and a kill at each store to shared memory of a
# dozen operations (make step-kill).  Chaos uses kvroute_share, kvroute_events,
# kvroute_prefill, kvroute_continue and kvroute_budget.

use FindBin;
use File::Basename qw(dirname);
use lib 't/lib';
use JSON::PP;
use Kvroute;

my $t = Kvroute->new();
my $build = dirname(dirname($t->{engine}));

plan(skip_all => 'chaos starts one nginx, by its name') if @{$t->{bin}} != 1;
plan(skip_all => 'no python3') unless Kvroute::which('python3');

my $file = "$t->{dir}/result.json";
my $log = "$t->{dir}/hunt.log";

sub hunt {
    my ($what, @command) = @_;

    unlink $file;

    my $pid = $t->spawn($log, @command);
    waitpid($pid, 0);

    is($?, 0, "$what has found no defect") or diag(Kvroute::slurp($log));

    return eval { decode_json(Kvroute::slurp($file)) } || {};
}

{
    local %ENV = (%ENV, BUILD => $build, MODULE => $t->{module},
                  NGINX_BIN => $t->{bin}[0], SEED => 1, SEEDS => 1,
                  BATCHES => 2, CLIENTS => 6, STEPS => '');

    my $r = hunt('chaos', "$FindBin::Bin/chaos/chaos.py", $file);

    cmp_ok($r->{$_}, '>', 0, "some $_") for qw(kills reloads answered);
    is($r->{$_}, 0, "no $_") for qw(lost stuck wrong_counts wrong_index alerts);
}

SKIP: {
    my $step = "$build/t/step/step";

    skip("no $step: make step-build", 3) unless -x $step;

    my $r = hunt('step', $step, $file, 0);

    cmp_ok($r->{kills}, '>', 100, 'kills');
    is($r->{kills}, $r->{stores}, 'one at each store');
}

done_testing();
