#!/usr/bin/perl

# Parts of the emulated engine in which a mistake would not show in other tests:
# cached and counted tokens, the end of each fault, times.  Replies, streams,
# metrics and events are tested in t/*.t by their readers: the router, and the
# SDKs of t/clients.t.
#
#     KVROUTE_ENGINE=build/t/engine prove t/engine/engine.t

use FindBin;
use lib "$FindBin::Bin/../lib";
use Kvroute;
use JSON::PP;
use Time::HiRes qw(time);

my ($true, $chats) = (JSON::PP::true, '/v1/chat/completions');
my $t = Kvroute->new();
my ($e, $f);

sub engines { ($e, $f) = $t->engines(@_, '--hardware', 'none') }


sub ask {
    my ($uri, $body, %arg) = @_;
    my $r = $t->post($uri, ref $body ? encode_json($body) : $body, port => $e, %arg);

    $r->{json} = eval { decode_json($r->{body}) };

    return $r;
}

# cached tokens of a chat, and of a completion

sub cached {
    my ($r) = @_;
    my $u = $r->{json}{usage};

    return ($u->{prompt_tokens_details} // $u->{input_tokens_details} // {})->{cached_tokens} // 0;
}

sub said { chat(text(1000, $_[0]), model => 'emulated', max_tokens => 8, @_[1 .. $#_]) }


engines(2, '--enable-prompt-tokens-details', '--request-log', 50);

# cached prompts, and where

my $r = ask($chats, said(1));
my ($prompt, $reply) = ($r->{json}{usage}{prompt_tokens}, $r->{json}{choices}[0]{message}{content});

is(cached($r), 0, 'nothing cached');
is(length $reply, 32, 'max_tokens, of 4 bytes');

$r = ask($chats, said(1));
is($r->{json}{choices}[0]{message}{content}, $reply, 'the same reply');
is(cached($r), int(($prompt - 1) / 16) * 16, 'all but the last token');
is(cached(ask($chats, said(1), port => $f)), 0, 'each replica has its own cache');
is(cached(ask($chats, said(1, cache_salt => 'x'))), 0, 'and each salt');

my $parts = chat([ { role => 'user', content => [ { type => 'text', text => text(1000, 1) } ] } ], model => 'emulated');
is(ask($chats, $parts)->{json}{usage}{prompt_tokens}, $prompt,
   'parts give the same prompt');

# replies are cached as the next prompt contains them: in a chat, in calls, in
# Responses

sub goes_on {
    my ($what, $r, $total) = @_;

    ok(cached($r) > $total - 17 && cached($r) <= $total, "$what: cached");
}

my %tool = (tools => [ { type => 'function', function => { name => 'search', parameters => {} } } ]);
my @turns = { role => 'user', content => 'tell me a long story ' x 10 };
my $total;

for my $call (0, 0, 1, 0) {
    $r = ask($chats, { messages => \@turns, %tool, max_tokens => 100, ignore_eos => $true },
             headers => { 'X-Engine-Tool-Call' => $call });
    goes_on('turn ' . @turns, $r, $total) if $total;
    $total = $r->{json}{usage}{total_tokens};

    push @turns, $r->{json}{choices}[0]{message},
         $call ? { role => 'tool', content => 'found' x 9 } : { role => 'user', content => 'and? ' x 9 };
}

my $old = { role => 'assistant', content => 'b', reasoning_content => 'hm ' x 50 };
my @once = map { { role => 'user', content => $_ } } qw(a c);
my @tokens = map { ask($chats, { messages => [ $once[0], $_, $once[1] ] })->{json}{usage}{prompt_tokens} }
             $old, { %$old, reasoning_content => undef };
is($tokens[0], $tokens[1], 'old reasoning is not rendered');

my %input = (input => 'count to ten, please ' x 10, max_output_tokens => 20);
$r = ask('/v1/responses', \%input);
my $id = $r->{json}{id};
$total = $r->{json}{usage}{total_tokens};
my $next = { %input, input => 'go on', previous_response_id => $id };
goes_on('Responses', ask('/v1/responses', $next), $total);
is(ask('/v1/responses', $next, port => $f)->{status}, 404, 'another replica does not know it');

# computed again: the prompt is not looked up, but cached afterwards

my %likely = (prompt => 'likely? ' x 60, max_tokens => 1);
my @hits = map { cached(ask('/v1/completions', { %likely, @$_ })) }
           [ prompt_logprobs => 0 ], [], [ prompt_logprobs => 1 ], [ echo => $true, logprobs => 1 ],
           [ echo => $true ];
is(join(' ', map { $_ > 90 ? 1 : $_ } @hits), '0 1 0 0 1', 'logprobs of a prompt compute it');
is(ask('/v1/completions', { %likely, truncate_prompt_tokens => 20 })->{json}{usage}{prompt_tokens},
   20, 'cut to its last tokens');

my $image = { type => 'image_url', image_url => { url => 'data:image/png;base64,' . 'QUJD' x 500_000 } };
$r = ask($chats, chat([ { role => 'user', content => [ $image ] } ], model => 'emulated'));
cmp_ok($r->{json}{usage}{prompt_tokens}, '<', 1000, 'an image: as many tokens as any');

# rejected requests

is(ask($chats, said(1, model => 'x'))->{status}, 404, 'an unknown model');
is(ask($chats, '{"messages"')->{status}, 400, 'broken JSON');
is(ask($chats, said(1, max_tokens => 200_000))->{status}, 400, 'too long a context');
is(ask('/control', { no_such_thing => 1 })->{status}, 400, 'an unknown member');
is(ask('/control', { fault => 'x' })->{status}, 400, 'an unknown fault');


# faults: the end of each, and the tokens before it

sub tokens_of { my $n = () = $_[0] =~ /"content":"[^"]/g; $n }

for ([ 'status=429', 429, 1, 0 ], [ 'reset-before-headers', 0, undef, 0 ],
     [ 'close-before-headers', 0, undef, 0 ], [ 'reset-after-headers', 200, 0, 0 ],
     [ 'reset-mid-stream=5', 200, 0, 5 ], [ 'truncate=5', 200, 0, 5 ], [ 'garbage', 0, undef, 0 ],
     [ 'garbage-body', 200, 1, 0 ], [ 'error-in-stream=2', 200, 1, 2, '"code":500.*DONE' ],
     [ 'client-error-in-stream=2', 200, 1, 2, '"code":400' ], [ 'bare-error-in-stream=2', 200, 1, 2, '"error"' ],
     [ 'error-in-body', 200, 1, 0, '"error"' ], [ 'empty-stream', 200, 1, 0 ], [ 'stall=3', 200, 1, 20 ],
     [ 'slow=2', 200, 1, 20 ])
{
    my ($fault, $status, $complete, $tokens, $re) = @$_;

    $r = ask($chats, said(2, stream => $true, max_tokens => 20, ignore_eos => $true),
             headers => { 'X-Engine-Fault' => $fault, 'X-Engine-Stall-Ms' => 30 });
    is($r->{status}, $status, $fault);
    is($r->{complete}, $complete, "$fault: its end");
    is(tokens_of($r->{body}), $tokens, "$fault: tokens");
    like($r->{body}, qr/$re/s, "$fault: the error") if $re;
}

$t->control($e, { fault => 'status=500', fault_count => 2, retry_after => 2 });
is(join(' ', map { ask($chats, said(3))->{headers}{'retry-after'} // 'none' } 1 .. 3), '2 2 none',
   'fault_count, retry_after');
$t->control($e, { fault => undef, fault_count => -1, retry_after => -1 });

# a request is aborted when its client leaves: in a stall, without an answer,
# before it is read

for my $h ({ 'X-Engine-Fault' => 'stall=3' }, { 'X-Engine-Fault' => 'hang' },
           { 'X-Engine-Delay-Ms' => 3600000 })
{
    my $stalls = ($h->{'X-Engine-Fault'} // '') =~ /stall/;
    my $aborted = $t->control($e)->{aborted};
    my $s = $t->start("POST $chats", said(4, stream => $true), port => $e, headers => $h);

    ok(wait_for(sub { $t->control($e)->{open_requests} == 1 }), "@{[ %$h ]}: open");
    $t->read_until($s, qr/(?:"content":"[^"].*){3}/s) if $stalls;
    close $s;
    ok(wait_for(sub { $t->control($e)->{open_requests} == 0 }), 'aborted');
    is($t->control($e)->{aborted}, $aborted + 1, 'and counted') if $stalls;
}

# HTTP

my $large = chat('y' x 400_000, model => 'emulated');
my $read = $t->control($e)->{body_bytes};
is(ask($chats, $large, chunked => 37_000)->{status}, 200, 'a chunked body');
is($t->control($e)->{body_bytes} - $read, length $large, 'the whole body is read');
unlike(ask($chats, said(1, stream => $true), version => '1.0')->{head}, qr/chunked/i, 'HTTP/1.0');

$t->control($e, { keepalive_max => 2 });
my $s = $t->connect($e);
is($t->post($chats, said(1), socket => $s)->{headers}{connection}, undef, 'one of two');
is(lc $t->post($chats, said(1), socket => $s)->{headers}{connection}, 'close', 'two of two');
$t->control($e, { keepalive_max => 0, keepalive_timeout => 0.05 });
$s = $t->connect($e);
$t->post($chats, said(1), socket => $s);
is(sysread($s, my $byte, 1), 0, 'an idle connection is closed');

# a restart, a reset, and a replica that is down or loading

ok(cached(ask($chats, said(1))), 'warm');
$t->control($e, { restart => $true });
is(cached(ask($chats, said(1))), 0, 'cold after a restart');
ask('/reset_prefix_cache', '');
is(cached(ask($chats, said(1))), 0, 'and after a reset');
is($t->control($e, { health_status => 503 })->{failed}, 0, 'counters are new');
is($t->get('/health', port => $e)->{status} . ask($chats, said(1))->{status}, '503200',
   'only the health check fails');
ask('/control?replica=1', { down => $true });
is($t->get('/health', port => $f)->{status}, 0, 'down');
ask('/control?replica=1', { down_s => 0.05 });
ok(wait_for(sub { $t->get('/health', port => $f)->{status} == 200 }), 'up by itself');
$t->control($e, { loading_s => 3600 });
is(ask($chats, said(1))->{status}, 503, 'loading');


# time: a batch of two, and freed blocks

($e) = $t->engines(1, '--speed', 50, '--max-num-seqs', 2, '--output-tokens', 4000,
                   '--kv-cache-size', 600);
my @s = map { $t->start("POST $chats", encode_json({ stream => $true, messages => [
    { role => 'user', content => "n $_" } ] }), port => $e) } 0 .. 2;
ok(wait_for(sub { my $c = $t->control($e); $c->{running} == 2 && $c->{waiting} == 1 }), 'two run, one waits');
$t->read_until($s[0], qr/"content":"\w/);
close $s[0];
ok($t->read_until($s[2], qr/"content":"\w/), 'now the third one runs');
close $_ for @s[1, 2];
ok(wait_for(sub { $t->control($e)->{kv_blocks_held} == 0 }), 'all blocks are free');

# a transfer to a decode server takes the time of its link

sub handed {
    my ($prompt) = @_;
    my $r = ask('/v1/completions', { prompt => $prompt, max_tokens => 1, kv_transfer_params =>
                                     { do_remote_decode => $true, do_remote_prefill => JSON::PP::false } });

    return { prompt => $prompt, kv_transfer_params => $r->{json}{kv_transfer_params} };
}

my $words = 'word ' x 800;          # 1000 tokens

engines(2, '--kv-bandwidth', 1e6, '--kv-bytes-per-token', 300);
my $began = time;
is(ask('/v1/completions', handed("a $words"), port => $f)->{status}, 200, 'a transfer');
cmp_ok(time - $began, '>=', 0.29, 'takes its bytes / bandwidth');
my $moved = $t->control($f)->{transferred};
ok($moved >= 1000 && $moved < 1010 && !$t->control($f)->{corrupt}, 'exactly the prompt');
ask('/v1/completions', handed("a $words" . 'more ' x 80), port => $f);
cmp_ok($t->control($f)->{transferred} - $moved, '<', 150, 'then only uncached tokens');

engines(2, '--kv-bandwidth', 1);
$s = $t->start('POST /v1/completions', encode_json(handed("b $words")), port => $f);
ok(wait_for(sub { $t->control($f)->{transferred} }), 'a transfer that takes years');
is(ask('/v1/completions', { prompt => "c $words" }, port => $f)->{status}, 200,
   'does not delay other requests');

for ('--time-to-first-token 1h', '--no-such-flag', '--engine x') {
    is(system("$t->{engine} $_ >/dev/null 2>&1") >> 8, 1, "refused: $_");
}

done_testing();
