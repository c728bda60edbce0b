#!/usr/bin/perl

# Budgets: the charge for a request, and the reaction above the limit; limits
# hold across workers, reloads and killed workers.

use lib 't/lib';
use Kvroute;

use JSON::PP ();

my $t = Kvroute->new(workers => 2);

$t->engines(2, '--hardware', 'none', '--model', 'm',
            '--enable-prompt-tokens-details');
$t->engines(1, '--hardware', 'none', '--model', 'm');

# two engines that continue an answer, and one that computes prompts for others

my @more = ('--hardware', 'none', '--model', 'm', '--enable-prompt-tokens-details');

$t->engines(2, @more, '--continue');
$t->engines(1, @more, '--kv-transfers', "$t->{dir}/transfers", '--disaggregation-mode', 'prefill');
$t->engines(1, @more, '--kv-transfers', "$t->{dir}/transfers", '--disaggregation-mode', 'decode');

$t->upstream('parts', 'kvroute_eject off;', 'E3 E4 max_fails=0');
$t->upstream('first', 'E5 max_fails=0');
$t->upstream('second', 'E6 max_fails=0');

$t->upstream('llm', 'E0 E1 max_fails=0');
$t->upstream('mute', 'E2 max_fails=0');
$t->upstream('queued', 'kvroute_queue max=9 timeout=1h;', 'E0 max_conns=1 max_fails=0');

# rates per day: practically nothing is paid back during a test

my $conf = <<'EOC';
    log_format kv '$arg_n $status "$kvroute_budget" $kvroute_budget_remaining '
                  '$kvroute_budget_charged $kvroute_computed_tokens '
                  '$kvroute_prompt_tokens $kvroute_completion_tokens '
                  '$kvroute_budget_retry';
    access_log %%DIR%%/access.log kv;

    map $http_x_rate $rate { default 1500/d; '~.' $http_x_rate; }

    %%FAULT%%
    client_body_buffer_size 1m;
    kvroute_request tenant=$http_x_key name=$http_x_key;
    kvroute_budget $http_x_key zone=z rate=1500/d;

    location /v1/ { proxy_pass http://llm; }
    location /early/ { proxy_buffering off; proxy_pass http://llm/; }
    location /free/ { kvroute_budget off; proxy_pass http://llm/; }
    location /prompt/ {
        kvroute_budget p$http_x_key zone=z rate=1500/d charge=prompt;
        proxy_pass http://llm/;
    }
    location /all/ {
        kvroute_budget a$http_x_key zone=z rate=100k/d charge=all;
        proxy_pass http://mute/;
    }
    location /rate/ {
        kvroute_budget r$http_x_key zone=z rate=$rate burst=100;
        proxy_pass http://llm/;
    }
    location /low/ {
        kvroute_budget $http_x_key zone=z rate=1500/d over=low;
        proxy_pass http://queued/;
    }
    location /wait/ {
        kvroute_budget w$http_x_key zone=z rate=$rate burst=0 over=1h;
        proxy_pass http://llm/;
    }
    location /short/ {
        kvroute_budget w$http_x_key zone=z rate=$rate burst=0 over=10ms;
        proxy_pass http://llm/;
    }
    location /paged/ {
        error_page 429 = @paged;
        proxy_pass http://llm/;
    }
    location @paged { kvroute_budget off; return 200 "elsewhere"; }
    location /looped/ {
        error_page 429 /v1/chat/completions;
        proxy_pass http://llm/;
    }
    location /api/ { kvroute_api write=on; }
    %%PARTS%%
    %%LEGS%%
EOC

$t->{vars}{PARTS} = $t->has('continue') ? <<'EOC' : '';
    location /broken/ {
        kvroute_continue on usage=on;
        kvroute_budget c$http_x_key zone=z rate=100k/d;
        proxy_set_header X-Engine-Fault $fault;
        proxy_pass http://parts/;
    }
    location /broken/all/ {
        kvroute_continue on usage=on;
        kvroute_budget d$http_x_key zone=z rate=100k/d charge=all;
        proxy_set_header X-Engine-Fault $fault;
        proxy_pass http://parts/;
    }
EOC

$t->{vars}{FAULT} = $t->{vars}{PARTS}
    && 'map $kvroute_continued $fault { volatile; default none; "" $http_x_fault; '
       . '0 $http_x_fault; 1 $http_x_fault1; }';

$t->{vars}{LEGS} = $t->has('prefill') ? <<'EOC' : '';
    location /legs/ {
        kvroute_prefill first connector=sglang;
        kvroute_budget l$http_x_key zone=z rate=100k/d;
        proxy_pass http://second/;
    }
    location /legs/all/ {
        kvroute_prefill first connector=sglang;
        kvroute_budget m$http_x_key zone=z rate=100k/d charge=all;
        proxy_pass http://second/;
    }
EOC

$t->conf($conf)->run();

my $chat = 'v1/chat/completions';
my ($n, $seed) = (0, 0);

# sends a prompt of this many characters (four per token), a new or a known one

sub ask {
    my ($path, $key, $len, %arg) = @_;
    my $old = delete $arg{seed};

    $n++;

    return $t->post("/$path?n=$n", chat(text($len, $old // ++$seed), %{$arg{body} // {}}),
                    headers => { 'X-Key' => $key, %{$arg{headers} // {}} });
}

# returns the access log's fields for a request

sub logged {
    my ($n) = @_;
    my @line;

    wait_for(sub { @line = $t->access_log() =~
                   /^$n (\d+) "(\S*)" (\S+) (\S+) (\S+) (\S+) (\S+) (\S+)$/m });

    my %l;
    @l{qw(status budget remaining charged computed prompt completion retry)} = @line;

    return \%l;
}

sub budget { return $t->status()->{zones}{z}{budget} }


# --- computed tokens: up to the burst, which is the rate's amount

is(ask($chat, 'acme', 4000)->{status}, 200, 'within the limit');
my $l = logged($n);
is($l->{budget}, 'admitted', 'in the log');
cmp_ok($l->{computed}, '>', 900, 'tokens were computed');
is($l->{charged}, $l->{computed}, 'these are charged');

is(ask($chat, 'acme', 4000)->{status}, 200, 'the last one may exceed it');
logged($n);

my $r = ask($chat, 'acme', 40);
is($r->{status}, 429, 'over the limit');
like($r->{headers}{'retry-after'}, qr/^\d{4,5}$/, 'Retry-After');
is($r->{headers}{'x-ratelimit-limit-tokens'}, 1500, 'the limit');
is($r->{headers}{'x-ratelimit-remaining-tokens'}, 0, 'nothing is left');
like($r->{headers}{'x-ratelimit-reset-tokens'}, qr/^\d{5,6}s$/,
     'the time until all is paid');
is(JSON::PP::decode_json($r->{body})->{error}{code}, 'rate_limit_exceeded', 'OpenAI\'s error');

$l = logged($n);
is("$l->{status} $l->{budget} $l->{remaining} $l->{charged}", '429 rejected 0 0', 'in the log');
is($l->{retry}, $r->{headers}{'retry-after'}, 'in a variable');

is(ask($chat, 'beta', 400)->{status}, 200, 'others are not limited');
is(ask($chat, '', 400)->{status}, 200, 'no name, no limit');
is(logged($n)->{budget}, '-', 'no budget');
is(ask("free/$chat", 'acme', 400)->{status}, 200, 'off');
is($t->get('/v1/models', headers => { 'X-Key' => 'acme' })->{status}, 200, 'no prompt');

my ($tenant) = grep { $_->{name} eq 'acme' } @{$t->status()->{upstreams}{llm}{tenants}};
is($tenant->{rejects}, 1, 'counted for the tenant');

# --- cached prompts cost nothing

ask($chat, 'gamma', 4000, seed => 1000);
is(ask($chat, 'gamma', 4000, seed => 1000)->{status}, 200, "cached, $_") for 1 .. 10;

$l = logged($n);
cmp_ok($l->{charged}, '<', 100, 'nearly free');
is($l->{charged}, $l->{computed}, 'by the engine\'s count');

is(ask("prompt/$chat", 'gamma', 4000, seed => 1000)->{status}, 200, 'charge=prompt');
$l = logged($n);
is($l->{charged}, $l->{prompt}, 'cached tokens count');
is(ask("prompt/$chat", 'gamma', 4000, seed => 1000)->{status}, 200, 'until over the limit');
is(ask("prompt/$chat", 'gamma', 4000, seed => 1000)->{status}, 429,
   'the third one is over the limit');

# --- all: with and without usage

is(ask("all/$chat", 'delta', 4000, body => { max_tokens => 64 })->{status}, 200, 'charge=all');
$l = logged($n);
is($l->{charged}, $l->{prompt} + $l->{completion}, 'prompt and answer');
cmp_ok($l->{completion}, '==', 64, 'the whole answer');

is(ask("all/$chat", 'delta', 4000, body => { max_tokens => 64, stream => JSON::PP::true })
   ->{status}, 200, 'a stream without usage');
my $known = $l->{charged};
$l = logged($n);
is($l->{prompt}, '-', 'nothing is reported');
cmp_ok($l->{charged}, '>', 0.9 * $known, 'charged by its length');
cmp_ok($l->{charged}, '<', 1.5 * $known, 'roughly');

# --- continued answers: computed tokens, the prompt once, and the text once

SKIP: {
    skip 'no such module', 6 if !$t->{vars}{PARTS};

    for my $path ('broken', 'broken/all') {
        my ($whole, $broken) = map {
            is(ask("$path/$chat", $path, 4000, body => { max_tokens => 100,
                                                         stream => JSON::PP::true },
                   headers => { 'X-Fault' => $_ })->{status}, 200, "$path: $_");
            logged($n)->{charged};
        } 'none', 'truncate=5';

        my $most = $path eq 'broken' ? 2 * $whole : $whole;
        cmp_ok(abs($broken - $most), '<', 50, "$path: $broken of $most");
    }
}

# --- two servers: the prompt once

SKIP: {
    skip 'no such module', 6 if !$t->{vars}{LEGS};

    for my $path ('legs', 'legs/all') {
        is(ask("$path/$chat", $path, 4000, body => { max_tokens => 100 })->{status}, 200, $path);
        $l = logged($n);

        my $cost = $l->{prompt} + ($path eq 'legs' ? 0 : $l->{completion});
        cmp_ok(abs($l->{charged} - $cost), '<=', 2, "$path: $l->{charged} of $cost");

        ask("$path/$chat", $path, 4000, headers => { 'X-Engine-Fault' => 'status=500' });
        is(logged($n)->{charged}, 0, "$path: both fail");
    }
}

# --- failed requests are free

is(ask($chat, 'eps', 4000, headers => { 'X-Engine-Fault' => 'status=500' })->{status}, 500,
   'the request fails') for 1 .. 3;
is(logged($n)->{charged}, 0, 'free');
is(ask($chat, 'eps', 4000)->{status}, 200, 'within the limit');

# a client that leaves before the first token pays, even after the header

my $early = $t->start("POST /early/$chat?n=e1",
                      chat(text(4000, 4000), stream => JSON::PP::true),
                      headers => { 'X-Key' => 'kappa', 'X-Engine-Fault' => 'stall=0' });
$t->read_until($early, qr/^HTTP\S+ 200/);
close $early;
cmp_ok(logged('e1')->{charged}, '>', 900, 'an early leaver pays for the prompt');

# a name of any length

is(ask($chat, 'x' x 7000, 4000)->{status}, 200, 'a long name');
ask($chat, 'x' x 7000, 4000);
is(ask($chat, 'x' x 7000, 40)->{status}, 429, 'has a budget');
is(ask($chat, 'x' x 6999, 40)->{status}, 200, 'another long name has its own budget');

# --- rates by variable; an invalid one does not limit

is(ask("rate/$chat", 'zeta', 4000, headers => { 'X-Rate' => '10/d' })->{status}, 200, 'a rate');
is(ask("rate/$chat", 'zeta', 4000, headers => { 'X-Rate' => '10/d' })->{status}, 429, 'over it');
is(ask("rate/$chat", 'zeta', 4000, headers => { 'X-Rate' => 'much' })->{status}, 200, 'invalid');
$t->expect_log(qr/invalid rate "much", expected e\.g\. 100k\/m/);

# debts at one rate do not count at another rate

is(ask("rate/$chat", 'zeta', 4000, headers => { 'X-Rate' => '100k/m' })->{status}, 200, 'another rate');
is(ask("rate/$chat", 'zeta', 4000, headers => { 'X-Rate' => '10/d' })->{status}, 429, 'the first one still owes');

# --- over the limit: the lowest class

is(ask("low/$chat", 'acme', 400)->{status}, 200, 'over=low: served');
is(logged($n)->{budget}, 'lowered', 'in the log');
is(ask("low/$chat", 'fresh', 400)->{status}, 200, 'within the limit');

my @class = @{$t->status()->{upstreams}{queued}{queue}{classes}};
my %passed = map { $_ => $class[$_]{passed} } grep { $class[$_]{passed} } 0 .. $#class;
is_deeply(\%passed, { 3 => 1, $#class => 1 }, 'one in the lowest class');

# --- or wait: 1000 tokens at 10k/s

is(ask("wait/$chat", 'eta', 4000, headers => { 'X-Rate' => '10k/s' })->{status}, 200, "waits, $_")
    for 1 .. 4;
cmp_ok(budget()->{waited}, '>=', 1, 'some have waited');
is(logged($n)->{budget}, 'admitted', 'and are admitted');

is(ask("wait/$chat", 'theta', 400, headers => { 'X-Rate' => '10/d' })->{status}, 200, 'slow');
is(ask("short/$chat", 'theta', 400, headers => { 'X-Rate' => '10/d' })->{status}, 429, 'too long');

my @held = map { $t->start("POST /wait/$chat?n=h$_", chat(text(400, 2000 + $_)),
                           headers => { 'X-Key' => 'theta', 'X-Rate' => '10/d' }) } 1 .. 3;

close $held[1];
ok(wait_for(sub { $t->access_log() =~ /^h2 499 "gone"/m }), 'a client leaves');
close $_ for @held[0, 2];
ok(wait_for(sub { $t->access_log() =~ /^h3 499 "gone"/m }), 'another one leaves');

# --- error_page

is(ask("paged/$chat", 'acme', 400)->{body}, 'elsewhere', 'another location responds');
ok(!$t->get('/paged/')->{headers}{'retry-after'}, 'without our headers');
is(ask("looped/$chat", 'acme', 400)->{status}, 429, 'the limit still applies');

# --- status

my $metrics = $t->get('/kvroute/metrics')->{body};
my $b = budget();

for my $kind (qw(admitted lowered rejected unknown)) {
    like($metrics, qr/^kvroute_budget_requests_total\{zone="z",result="$kind"\} $b->{$kind}$/m,
         "metrics: $kind");
}

my $log = $t->access_log();
my ($sum, $rejected) = (0, 0);
$sum += $1 while $log =~ /^\w+ \d+ "admitted" \S+ (\d+)/mg;
$rejected++ while $log =~ /"rejected"/g;

cmp_ok(abs($b->{charged_tokens} - $sum), '<', 20, 'charged: as in the log');
is($b->{rejected}, $rejected, 'rejected: as in the log');
cmp_ok($b->{admitted}, '>', 20, 'admitted');

my %account = map { $_->{name} // '' => $_ } @{$b->{accounts}};
ok(!(grep { $_->{rejected} > 0 } $account{gamma}), 'accounts: one without rejections');
cmp_ok($account{acme}{rejected}, '>=', 1, 'accounts: one with rejections');
cmp_ok($account{acme}{charged_tokens}, '>', 1900, 'accounts: the charge');

my ($charged) = (0);
$charged += $_->{charged_tokens} for @{$b->{accounts}};
is($charged, $b->{charged_tokens}, 'the sum of all accounts');

# --- limits hold across reloads and killed workers

$t->reload();
is(ask($chat, 'acme', 40)->{status}, 429, 'limits hold over a reload');

(my $larger = $conf) =~ s/^/    kvroute_zone zone=z:5m;\n/;
$t->conf($larger);
$t->reload();
is(ask($chat, 'acme', 40)->{status}, 429, 'limits hold with another size of the zone');

for (1 .. 2) {
    my ($pid) = $t->workers();
    $t->kill_worker($pid);
}

wait_for(sub { $t->workers() == 2 });
is(ask($chat, 'acme', 40)->{status}, 429, 'limits hold after a killed worker');
is(ask($chat, 'beta', 40)->{status}, 200, 'others are not limited');

# requests of a killed worker stay charged by their estimate until it is paid:
# 1000 tokens at 2000 tokens a second

my $s = $t->start("POST /rate/$chat?n=k", chat(text(4000, 3000), max_tokens => 8),
                  headers => { 'X-Key' => 'iota', 'X-Rate' => '2k/s',
                               'X-Engine-Fault' => 'slow=2000',
                               'X-Engine-Output-Tokens' => 8 });

wait_for(sub { ($t->load())[0] });

$t->kill_worker($_) for $t->workers();
wait_for(sub { $t->workers() == 2 });
close $s;

ok(wait_for(sub { ask("rate/$chat", 'iota', 40, headers => { 'X-Rate' => '2k/s' })->{status}
                  == 200 }), 'the reservation of a killed worker is released');

ok($t->idle(), 'the counters are back at zero');

# --- nginx -t

sub refused {
    my ($line, $re) = @_;

    $t->conf($conf =~ s/kvroute_budget \$http_x_key zone=z rate=1500\/d;/$line/r);

    my ($ok, $out) = $t->check();
    ok(!$ok, "refused: $line");
    like($out, $re, 'and why');
}

refused('kvroute_budget;', qr/invalid number of arguments/);
refused('kvroute_budget $http_x_key;', qr/must have a string, such as \$tenant, and "zone" and "rate"/);
refused('kvroute_budget $http_x_key zone=z;', qr/"zone" and "rate" parameters, such as "zone=NAME rate=100k\/m"/);
refused('kvroute_budget $http_x_key zone=y rate=1/s;', qr/zone "y" is unknown in "kvroute_budget": declare "kvroute_zone zone=y:16m;"/);
refused("kvroute_budget \$http_x_key zone=z rate=$_;",
        qr{"rate=" must be tokens per s, m, h or d such as 100k/m, or a variable: invalid value in parameter "rate=\Q$_\E"})
    for qw(100k 0/m 1.5k/m 100k/y -5/s);
refused("kvroute_budget \$http_x_key zone=z rate=1/s burst=x;", qr/"burst=" must be a number of tokens such as 100k/);
refused("kvroute_budget \$http_x_key zone=z rate=1/s charge=cached;", qr/"charge=" must be one of "computed prompt all"/);
refused("kvroute_budget \$http_x_key zone=z rate=1/s over=503;", qr/"over=" must be 429, low, or a time to wait such as 30s/);
refused("kvroute_budget \$http_x_key zone=z rate=1/s speed=9;", qr/invalid parameter "speed=9": known are/);
refused("kvroute_budget \$http_x_key zone=z rate=1/s rate=2/s;", qr/duplicate parameter/);
refused('kvroute_budget off zone=z;', qr/is off: it takes no parameters/);
refused('kvroute_budget off; kvroute_budget off;', qr/is duplicate/);

$t->expect_log(qr/\[emerg\]/);
$t->done();
