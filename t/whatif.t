#!/usr/bin/perl

# The effect of more cache: estimated from traffic, in JSON and for Prometheus,
# and compared with engines that have it.

use lib 't/lib';
use Kvroute;

my $t = Kvroute->new();

# two engines of 32,768 tokens, 131,072 bytes of text, and two of twice that

$t->engines(1, '--hardware', 'none', '--model', 'm', '--kv-cache-size', $_, '--block-size', 16,
            '--enable-prompt-tokens-details') for 2048, 2048, 4096, 4096;

$t->conf(<<'EOC')->run();
    kvroute_zone zone=z:8m;

    upstream small {
        zone small 64k;
        kvroute kv_cache zone=z;
        server 127.0.0.1:%%E0%% max_fails=0;
        server 127.0.0.1:%%E1%% max_fails=0;
        kvroute_probe interval=100ms timeout=100ms;
    }
    upstream large {
        zone large 64k;
        kvroute kv_cache zone=z;
        server 127.0.0.1:%%E2%% max_fails=0;
        server 127.0.0.1:%%E3%% max_fails=0;
        kvroute_probe interval=100ms timeout=100ms;
    }

    location / { proxy_pass http://small; }
    location /large/ { proxy_pass http://large/; }
EOC

my $chat = 'v1/chat/completions';

my $any = popular(400);

sub ask {
    my ($path, $n) = @_;
    my ($cached, $all) = (0, 0);

    for my $i (1 .. $n) {
        my $body = $t->post("$path$chat", $any->())->{body};
        $all += $1 if $body =~ /"prompt_tokens":(\d+)/;
        $cached += $1 if $body =~ /"cached_tokens":(\d+)/;
    }

    return $cached / $all;
}

srand 1;
ok(wait_for(sub { ($t->peer('small', $t->{vars}{E0})->{capacity_source} // '') eq 'reported' }),
   'the capacity is known');

ask('/', 100);
ok(!$t->status()->{upstreams}{small}{whatif}, 'no estimate without enough requests');

my $now = ask('/', 4000);
my $w = $t->status()->{upstreams}{small}{whatif};

ok($w, 'known') or $w = {};
cmp_ok(abs($w->{now}{cached} - $now), '<', 0.05, "today: $w->{now}{cached} of $now");

ask('/large/', 400);
my $then = ask('/large/', 1200);
cmp_ok(abs($w->{twice}{cached} - $then), '<', 0.08, "twice the cache: $w->{twice}{cached} of $then");
cmp_ok($w->{half}{cached}, '<', $w->{now}{cached} - 0.1,
       'half the cache: fewer tokens are cached');
cmp_ok($w->{half}{load}, '>', 1.1, 'half the cache: more work');
cmp_ok($w->{twice}{load}, '<', 0.75, 'twice the cache: less work');
cmp_ok($w->{one_less}{cached}, '<', $w->{now}{cached},
       'one engine less: fewer tokens are cached');
cmp_ok($w->{one_less}{load}, '>', 2,
       'one engine less: more than twice the work for the other one');

my @curve = map { $_->{cached} } @{$w->{curve}};
is_deeply(\@curve, [ sort { $a <=> $b } @curve ], 'the curve rises');

my $metrics = $t->get('/kvroute/metrics')->{body};

for my $change (qw(now one_more one_less half twice four_times host_2 host_4 host_8 perfect_routing)) {
    like($metrics, qr/^kvroute_whatif_$_\{upstream="small",change="$change"\} [\d.]+$/m, "$change: $_")
        for qw(cached_ratio load_ratio);
}

for my $kind ([cached => 'ratio'], [ttft_p95 => 'seconds']) {
    for my $end (qw(low high)) {
        my ($name, $unit) = @$kind;
        my ($value) = $metrics
            =~ /^kvroute_whatif_${name}_${end}_$unit\{upstream="small",change="half"\} (\S+)$/m;
        is($value, sprintf('%.4f', $w->{half}{"${name}_$end"}), "as in the JSON: ${name}_$end");
    }
}

$t->reload();
is($t->status()->{upstreams}{small}{whatif}{now}{cached}, $w->{now}{cached},
   'a reload keeps the estimates');

$t->done();
