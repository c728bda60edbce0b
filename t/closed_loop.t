#!/usr/bin/perl

# Predicted and delivered cached tokens.  Misses of three prefixes show that an
# engine has lost its cache.  An engine that reports no cached tokens is not
# judged.

use lib 't/lib';
use Kvroute;

my $t = Kvroute->new();

my @e = $t->engines(2, '--hardware', 'none', '--model', 'm',
                    '--output-tokens', 500, '--lora-modules', 'other',
                    '--enable-prompt-tokens-details');
my ($silent) = $t->engines(1, '--hardware', 'none', '--model', 'm');
my @small = ('--hardware', 'none', '--model', 'm', '--kv-cache-size', 1024,
             '--enable-prompt-tokens-details');
my ($small) = $t->engines(1, @small);
my ($asked) = $t->engines(1, '--hardware', 'none', '--model', 'm',
                          '--enable-prompt-tokens-details');

$t->conf(<<'EOF');
    kvroute_zone zone=z:4m;
    log_format kv '$arg_n $kvroute_prompt_tokens $kvroute_cached_tokens '
                  '$kvroute_matched_bytes';
    access_log %%DIR%%/access.log kv;

    upstream a { zone a 64k; kvroute kv_cache zone=z;
                 server 127.0.0.1:%%E0%%; server 127.0.0.1:%%E1%% down; }
    upstream b { zone b 64k; kvroute kv_cache zone=z;
                 server 127.0.0.1:%%E1%%; server 127.0.0.1:%%E0%% down; }
    upstream mute { zone mute 64k; kvroute kv_cache zone=z;
                    server 127.0.0.1:%%E2%%; server 127.0.0.1:%%E0%% down; }
    upstream small { zone small 64k; kvroute kv_cache zone=z;
                     server 127.0.0.1:%%E3%%; server 127.0.0.1:%%E1%% down;
                     kvroute_probe interval=1s; }
    upstream asked { zone asked 64k; kvroute kv_cache zone=z;
                     server 127.0.0.1:%%E4%%; server 127.0.0.1:%%E1%% down;
                     kvroute_probe interval=50ms; }

    location /a/ { proxy_pass http://a/; }
    location /b/ { proxy_pass http://b/; }
    location /mute/ { proxy_pass http://mute/; }
    location /asked/ { proxy_pass http://asked/; }
    location /small/ { proxy_pass http://small/; }
    location = /kvroute/json { kvroute_status json; access_log off; }
EOF

$t->run();

my $ready = time();

sub cache { return $t->peer($_[0], $_[1])->{cache}; }

my $n = 0;

sub ask {
    my ($up, $seed, $len) = @_;

    $t->post("/$up/v1/chat/completions?n=" . ++$n,
             chat(text($len || 8000, $seed), max_tokens => 1));
}

# predictions are right

for my $seed (1 .. 6) {
    ask('a', $seed) for 1 .. 3;
}

my $c = cache('a', $e[0]);
is($c->{responses}, 18, 'responses that report cached tokens');
cmp_ok($c->{delivered_tokens}, '>', 0.95 * $c->{predicted_tokens},
       'predicted tokens are delivered');
cmp_ok($c->{delivered_tokens}, '<', 1.05 * $c->{predicted_tokens},
       'no more than these');
is("$c->{missed} $c->{flushes_usage}", '0 0', 'nothing missed');
cmp_ok($c->{bytes_per_token}, '>', 3, 'bytes per token');
cmp_ok($c->{bytes_per_token}, '<', 4.5, 'bytes per token');

# lost: the first two prefixes prove nothing, nor does one prefix repeated

$t->control($e[0], { reset_cache => JSON::PP::true });

ask('a', 1);
$c = cache('a', $e[0]);
is("$c->{missed} $c->{flushes_usage}", '1 0', 'one prefix missed');

ask('a', 2);
$c = cache('a', $e[0]);
is("$c->{missed} $c->{flushes_usage}", '2 0', 'two prefixes missed');

ask('a', 3);
$c = cache('a', $e[0]);
is("$c->{missed} $c->{flushes_usage}", '3 1', 'three prefixes missed: the cache is lost');

# prompts sent since then stay in the index, older ones are removed

my %line;

sub line {
    my ($n) = @_;
    wait_for(sub { ($line{$n}) = $t->access_log() =~ /^$n (.*)$/m });
    return split / /, $line{$n};
}

ask('a', 1);
cmp_ok((line($n))[2], '>', 7000, 'a newer prompt stays');
ask('a', 5);
is((line($n))[2], 0, 'an older one is removed');

# a lost cache is noticed at most once a minute

ask('a', $_) for 1 .. 6;
$t->control($e[0], { reset_cache => JSON::PP::true });
ask('a', $_) for 1 .. 6;
is(cache('a', $e[0])->{flushes_usage}, 1, 'not twice in a minute');

# a single prefix, shared by many prompts, proves nothing

ask('b', 20) for 1 .. 2;
$t->control($e[1], { reset_cache => JSON::PP::true });
ask('b', 20);
$t->control($e[1], { reset_cache => JSON::PP::true });
ask('b', 20);
$t->control($e[1], { reset_cache => JSON::PP::true });
ask('b', 20);
$t->control($e[1], { reset_cache => JSON::PP::true });
ask('b', 20);
is(cache('b', $e[1])->{flushes_usage}, 0, 'one prefix four times is no proof');

# an engine that never reports cached tokens is not assumed to have none

for my $seed (1 .. 5) {
    ask('mute', $seed) for 1 .. 2;
}

$c = cache('mute', $silent);
is("$c->{responses} $c->{missed} $c->{flushes_usage}", '0 0 0',
   'an engine without reports');

# Eviction is not a restart: probes would show a restart.  Other prompts fill
# the cache each time.

{
    my $engine = sub { return $t->peer('small', $small)->{engine} };

    ok(wait_for(sub { ($engine->()->{capacity_tokens} // 0) == 1024 * 16 }),
       'the capacity is reported');
    cmp_ok(abs($t->peer('small', $small)->{capacity_bytes} / (1024 * 16 * 4)
               - 1), '<', 0.02, 'and used unchanged');

    ask('small', $_, 4000) for 1 .. 3, 1;

    for my $round (1 .. 3) {

        $t->post('/v1/chat/completions',
                 chat(text(60_000, 1000 + $round), max_tokens => 1),
                 port => $small);
        ask('small', $_, 4000) for 1 .. 3;
    }

    my $c = cache('small', $small);
    cmp_ok($c->{missed}, '>=', 6, 'prompts are evicted');
    is("$c->{flushes_usage} $c->{flushes_probe}", '0 0',
       'an engine with evictions has not restarted');
    cmp_ok($c->{capacity_factor}, '<', 0.9, 'its assumed capacity is reduced');

    # an unusual response does not change the bytes per token much

    my $bytes = $c->{bytes_per_token};
    my $r = $t->post('/small/v1/chat/completions?n=' . ++$n,
                     chat([ { role => 'user',
                              content => [ { type => 'text', text => 'x' },
                                map { +{ type => 'image_url', image_url =>
                                    { url => "http://x/$_" } } } 1 .. 60 ] } ],
                          max_tokens => 1));
    is($r->{status}, 200, 'a prompt of images');

    $c = cache('small', $small);
    cmp_ok(abs($c->{bytes_per_token} / $bytes - 1), '<', 0.02,
           'bytes per token hardly change');
}

# a probe does not report a restart again that responses have shown, because
# this would remove prompts sent since then

{
    my $probe = sub { return $t->peer('asked', $asked)->{engine} };
    my $answers = sub {
        my $p = $probe->();
        return $p->{probes} - $p->{failed};
    };

    for my $seed (1 .. 5) {
        ask('asked', $seed) for 1 .. 2;
    }

    # another process would have started seconds later

    ok(wait_for(sub { ($probe->()->{cache_queries} // 0) > 0
                      && time() - $ready > 4 }), 'the engine is probed');

    $t->control($asked, { metrics => '500' });
    ok(wait_for(sub { $probe->()->{age_ms} > 250 }), 'probes fail');

    $t->control($asked, { restart => JSON::PP::true });
    ask('asked', $_) for 1 .. 3;
    is(cache('asked', $asked)->{flushes_usage}, 1, 'found by its responses');

    $t->control($asked, { metrics => 'ok' });
    my $then = $answers->();
    ok(wait_for(sub { $answers->() > $then + 2 }), 'probes succeed');

    is(cache('asked', $asked)->{flushes_probe}, 0, 'one restart counts once');
    ask('asked', 1);
    cmp_ok((line($n))[2], '>', 7000, 'prompts sent since then stay');

    # the next restart is reported

    ok(wait_for(sub { ($probe->()->{cache_queries} // 0) > 0 }), 'probes continue');
    my $told = cache('asked', $asked)->{flushes_probe};
    my $start = time();
    wait_for(sub { time() > $start + 3 });
    $t->control($asked, { restart => JSON::PP::true });
    ok(wait_for(sub { cache('asked', $asked)->{flushes_probe} > $told }),
       'a probe reports the next one');
}

# the reply of a turn is part of the next prompt

for my $case ([ 'chat/completions', 'whole' ], [ 'chat/completions', 'stream' ],
              [ 'messages', 'stream' ])
{
    my ($api, $mode) = @$case;
    my @arg = (max_tokens => 500, stream => $mode eq 'stream' ? JSON::PP::true
                                                              : JSON::PP::false);
    my @m = ({ role => 'user', content => text(3000, 50 + $n) });
    my $r = $t->post("/b/v1/$api?n=" . ++$n, chat(\@m, @arg));

    my $reply = $mode eq 'whole'
        ? JSON::PP::decode_json($r->{body})->{choices}[0]{message}{content}
        : join '', map {
              my $e = eval { JSON::PP::decode_json($_) };
              $e->{choices} ? $e->{choices}[0]{delta}{content} // ''
                            : ref $e->{delta} ? $e->{delta}{text} // '' : '';
          } $r->{body} =~ /^data: (\{.*)/mg;

    cmp_ok(length $reply, '>', 1900, "$api, $mode: a reply");

    $t->post("/b/v1/$api?n=" . ++$n,
             chat([ @m, { role => 'assistant', content => $reply },
                    { role => 'user', content => 'go on ' x 100 } ],
                  max_tokens => 1));

    my ($tokens, $cached, $matched) = line($n);
    cmp_ok($matched, '>', 3000 + length($reply) - 300,
           "$api, $mode: is predicted to be cached");

    # Anthropic's usage does not include cached tokens in input_tokens

    cmp_ok($cached * 4, '>', 3000 + length($reply) - 300,
           "$api, $mode: and is cached");
}

$t->done();
