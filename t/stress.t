#!/usr/bin/perl

# Twenty seconds (STRESS_SECONDS) of mixed load: streams, aborts, bodies of 1 KB
# to 2 MB, five reloads and three killed workers. Each request of a surviving
# connection is answered, all counters end at zero, and prefixes from before the
# reloads are still known, since the engines' caches hold all of them.

use lib 't/lib';
use JSON::PP;
use Kvroute;
use Time::HiRes qw(time sleep);

my $seconds = $ENV{STRESS_SECONDS} || 20;
my $seed = $ENV{STRESS_SEED} || 1;

my $t = Kvroute->new(workers => $ENV{KVROUTE_WORKERS} || 2);

$t->engines(4, '--model', 'm', '--speed', 50, '--output-tokens', 40,
            '--max-model-len', 1_000_000, '--kv-cache-size', 3_000_000,
            '--enable-prompt-tokens-details');

$t->upstream('u', 'E0 E1 E2 E3 max_fails=0', 'keepalive 32;',
             'keepalive_timeout 4s;');

$t->conf(<<'EOF');
    kvroute_zone zone=z:16m;
    log_format kv '$arg_n $kvroute_reason $kvroute_best_bytes '
                  '$kvroute_prompt_bytes $status';
    access_log %%DIR%%/access.log kv;
    client_max_body_size 8m;
    client_body_buffer_size 64k;

    proxy_http_version 1.1;
    proxy_set_header Connection "";
    proxy_next_upstream error timeout non_idempotent;

    location / { proxy_buffering off; proxy_pass http://u; }
    location /buffered/ { proxy_pass http://u/; }
EOF

$t->run();

# large prompts that must be remembered, sent first

my @keep = map { chat(text(30_000, 900 + $_)) } 1 .. 8;

is($t->post('/v1/chat/completions?n=keep', $_)->{status}, 200, 'a prompt to remember')
    for @keep;

diag("seed $seed, $seconds s");

my @sizes = (1_000, 2_000, 4_000, 8_000, 20_000, 60_000, 200_000, 2_000_000);
my $clients = 6;
my $end = time() + $seconds;

# Each client writes a line for each request: when it began and ended, its kind
# and its outcome.

sub client {
    my ($id) = @_;

    srand($seed * 1000 + $id);

    open my $log, '>', "$t->{dir}/client$id" or die;
    my $n = 0;

    while (time() < $end) {
        my $kind = ('stream', 'stream', 'plain', 'plain', 'abort', 'abort_late',
                    'get')[rand 7];
        my $size = $sizes[$kind eq 'get' ? 0 : rand(@sizes - (rand() < .8))];
        my $uri = rand() < .3 ? '/buffered/v1/chat/completions'
                              : '/v1/chat/completions';
        my $what = $size > 1_000_000 ? $id % 2 : $id % 3 * 10 + $n % 7;
        my $body = chat(text($size, $what),
                        stream => ($kind =~ /stream|abort/ ? JSON::PP::true
                                                           : JSON::PP::false),
                        max_tokens => 20);
        my $start = time();
        my $how;

        $n++;

        if ($kind eq 'get') {
            my $r = $t->get('/v1/models');
            $how = $r->{status} == 200 && $r->{complete} ? 'ok'
                   : "failed $r->{status}";

        } elsif ($kind =~ /abort/) {
            my $s = $t->start("POST $uri", $body);

            if ($s) {
                $t->read_until($s, qr/data: /) if $kind eq 'abort_late';
                close $s;
            }

            $how = 'ok';

        } else {
            my $r = $t->post($uri, $body);
            my $whole = $r->{complete}
                        && ($kind eq 'plain' || $r->{body} =~ /\[DONE\]\s*$/);
            $how = $r->{status} == 200 && $whole ? 'ok'
                   : "failed $r->{status} " . length($r->{body});
        }

        printf $log "%.3f %.3f %s %d %s\n", $start, time(), $kind, $size, $how;
    }

    close $log;
}

my @pids;

for my $id (1 .. $clients) {
    my $pid = fork();

    if ($pid == 0) {
        client($id);
        POSIX::_exit(0);
    }

    push @pids, $pid;
}

# reloads and kills, in turn

my @kills;
my $begin = time();
my ($reloads, $kills) = (0, 0);

for my $i (1 .. 8) {
    my $due = $begin + $seconds * $i / 9;
    sleep 0.01 while time() < $due;

    if ($i =~ /[247]/) {
        my @w = $t->active_workers();
        push @kills, time();
        $t->kill_worker($w[rand @w]);
        wait_for(sub { $t->active_workers() == $t->{workers} });
        push @kills, time();
        $kills++;

    } else {
        $t->reload();
        $reloads++;
    }
}

waitpid($_, 0) for @pids;

is($reloads, 5, 'five reloads');
is($kills, 3, 'three workers killed');

# every request was answered, except those in progress when a worker was killed

my ($ok, @failed, $cut) = (0);
$cut = 0;

for my $id (1 .. $clients) {
    for my $line (split /\n/, Kvroute::slurp("$t->{dir}/client$id")) {
        my ($from, $to, undef, undef, $how) = split ' ', $line, 5;

        if ($how eq 'ok') {
            $ok++;
            next;
        }

        # a kill lasts from the signal until the new worker runs

        my $killed = 0;

        for (my $k = 0; $k < @kills; $k += 2) {
            $killed ||= $from <= $kills[$k + 1] && $to >= $kills[$k];
        }

        $killed ? $cut++ : push @failed, $line;
    }
}

diag("$ok requests, $cut cut off by kills");
cmp_ok($ok, '>', 0, 'requests were served');
is(join("\n", @failed), '', 'all others were answered');
cmp_ok($cut, '<=', 3 * $clients, 'a kill cuts off only requests of its worker');

# counters

ok($t->idle(), 'all counters are back at zero');
is(($t->load())[2], 0, "nginx counts no request either");
ok(wait_for(sub { $t->workers() == $t->{workers} }), 'old workers are gone');
is($t->status()->{zones}{z}{processes}, $t->{workers}, 'their process slots are free');

# the prompts from before the first reload: they may go elsewhere, away from
# engines that were slow during the test

$t->post("/v1/chat/completions?n=again", $_) for @keep;

my @again;

wait_for(sub {
    @again = $t->access_log() =~ /^again (.*)$/mg;
    return @again == @keep;
});

my $known = grep { my ($reason, $best) = split; $best > 29_000 } @again;

is($known, scalar @keep, 'prefixes from before the reloads are known')
    or diag(explain(\@again, map { $_->{cache} }
                              @{$t->status()->{upstreams}{u}{peers}}));

$t->done();
