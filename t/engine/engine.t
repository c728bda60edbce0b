#!/usr/bin/perl

# The HTTP side of the emulated engine.  Core Perl only.
#
#     KVROUTE_ENGINE=build/t/engine prove t/engine/engine.t

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../lib";
use IO::Select;
use JSON::PP;
use Kvroute ();
use Test::More;
use Time::HiRes qw(time);

my $t = Kvroute->new();
my $engine = $t->{engine};

plan skip_all => "$engine is not built" unless -x $engine;

my $json = JSON::PP->new->utf8->canonical;
my %running;

END {
    local $?;
    for my $pid (keys %running) {
        kill 'KILL', $pid;
        waitpid($pid, 0);
    }
}


# --- tools ---------------------------------------------------------------

sub engine {
    my ($n, @args) = @_;
    my ($pid, $out, $line);

    my ($port) = $t->ports($n);

    $pid = open($out, '-|', $engine, '--port', $port, '--count', $n, @args)
        or die "$engine: $!";
    defined($line = <$out>) or die "the engine does not start\n";
    $running{$pid} = 1;

    return { pid => $pid, out => $out, port => $port, line => $line };
}


sub stop {
    my ($e, $signal) = @_;

    kill $signal || 'TERM', $e->{pid};
    waitpid($e->{pid}, 0);
    my $rc = $?;
    delete $running{$e->{pid}};

    return $rc;
}


sub conn {
    my ($e, $i) = @_;

    return $t->connect($e->{port} + ($i || 0));
}


# reads at least one byte more, "" at the end, undef on a reset

sub more {
    my ($s, $buf) = @_;

    IO::Select->new($s)->can_read(60) or die "nothing comes\n";

    my $n = sysread($s, $$buf, 65536, length $$buf);

    return defined $n ? $n : undef;
}


sub until_match {
    my ($s, $buf, $re) = @_;

    until ($$buf =~ $re) {
        my $n = more($s, $buf);
        return 0 if !$n;
    }

    return 1;
}


sub slurp {
    my ($s, $buf) = @_;
    my $n;

    while ($n = more($s, $buf)) { }

    return defined $n ? 'closed' : 'reset';
}


# the length of a whole response; 0: there is more to read

sub whole {
    my ($data) = @_;
    my ($head) = $data =~ /\A(.*?\r\n\r\n)/s or return 0;
    my $n = length $head;

    if ($head =~ /^content-length: (\d+)/mi) {
        $n += $1;

    } else {
        return 0 unless substr($data, $n) =~ /\A(?:.*?\r\n)?0\r\n\r\n/s;
        $n += $+[0];
    }

    return $n <= length $data ? $n : 0;
}


# one response, and how it ended; what is behind it stays in the buffer

sub response {
    my ($s, $buf) = @_;
    my ($own, $n) = ('');
    $buf ||= \$own;

    until ($n = whole($$buf)) {
        last unless more($s, $buf);
    }

    my $raw = substr $$buf, 0, $n || length $$buf, '';
    my $r = Kvroute::Client::parse($raw, $n);
    my $sized = ($r->{head} // '') =~ /^(?:content-length|transfer-encoding):/mi;

    return { %$r, raw => $raw,
             end => !$r->{status} ? 'none' : $sized && !$n ? 'short' : 'complete' };
}


sub send_request {
    my ($s, $method, $uri, $body, $headers, $version) = @_;

    $t->start("$method $uri", $body, socket => $s, headers => $headers,
              version => $version);
}


sub request {
    my ($e, $i, $method, $uri, $body, $headers) = @_;

    $body = $json->encode($body) if ref $body;

    my $s = conn($e, $i) or return { status => 0, end => 'refused' };
    send_request($s, $method, $uri, $body, $headers);

    my $r = response($s);
    $r->{json} = eval { $json->decode($r->{body}) } if $r->{body};

    return $r;
}

sub get { my ($e, $uri, $i) = @_; request($e, $i, 'GET', $uri) }

sub post {
    my ($e, $uri, $body, $headers, $i) = @_;
    return request($e, $i, 'POST', $uri, $body, $headers);
}


sub control {
    my ($e, $body, $i) = @_;
    my $r = defined $body ? post($e, '/control', $body, {}, $i)
                          : get($e, '/control', $i);
    return $r->{json};
}


sub await {
    my ($what, $test) = @_;

    ok(Kvroute::wait_for($test), $what);
}


# events of a stream: [ event, data ]

sub events {
    my ($body) = @_;
    my @events;

    for my $block (split /\n\n/, $body) {
        my ($event) = $block =~ /^event: (.*)$/m;
        my ($data) = $block =~ /^data: ?(.*)$/m;

        next unless defined $data;

        push @events, [ $event,
                        $data =~ /^\{/ ? $json->decode($data) : $data ];
    }

    return @events;
}


sub chat {
    my ($text, %more) = @_;
    return { model => 'emulated', max_tokens => 8,
             messages => [ { role => 'system', content => 'Be brief. ' x 20 },
                           { role => 'user', content => $text } ], %more };
}


sub value {
    my ($body, $name) = @_;
    my ($v) = $body =~ /^\Q$name\E ([^\s]+)$/m;
    return defined $v ? $v + 0 : undef;
}


# --- start and stop --------------------------------------------------------

my $e = engine(2, '--hardware', 'none', '--enable-prompt-tokens-details',
               '--request-log', 50);

is($e->{line}, sprintf("ready %d..%d\n", $e->{port}, $e->{port} + 1),
   'ready line');

my $r = get($e, '/health');
is($r->{status}, 200, 'health');
is($r->{body}, '', 'health of vLLM is empty');

is(get($e, '/v1/models')->{json}{data}[0]{id}, 'emulated', 'models');
is(get($e, '/nothing')->{status}, 404, 'unknown path');
is(get($e, '/v1/chat/completions')->{status}, 405, 'wrong method');
is(get($e, '/health', 1)->{headers}{'x-engine-replica'}, 1, 'two replicas');


# --- chat ------------------------------------------------------------------

$r = post($e, '/v1/chat/completions', chat('one'), { 'X-Request-Id' => 'r1' });
is($r->{status}, 200, 'chat');
is($r->{json}{usage}{completion_tokens}, 8, 'max_tokens');
is($r->{json}{choices}[0]{finish_reason}, 'length', 'finish reason');
is(length $r->{json}{choices}[0]{message}{content}, 32, '4 bytes a token');
is($r->{json}{usage}{prompt_tokens_details}{cached_tokens}, 0, 'nothing cached');

my $content = $r->{json}{choices}[0]{message}{content};
my $prompt = $r->{json}{usage}{prompt_tokens};

$r = post($e, '/v1/chat/completions', chat('one'));
is($r->{json}{choices}[0]{message}{content}, $content, 'same reply again');
is($r->{json}{usage}{prompt_tokens_details}{cached_tokens},
   int(($prompt - 1) / 16) * 16, 'cached tokens, the last one is computed');

$r = post($e, '/v1/chat/completions', chat('one'), {}, 1);
is($r->{json}{usage}{prompt_tokens_details}{cached_tokens}, 0,
   'the other replica has its own cache');

$r = post($e, '/v1/chat/completions',
          chat([ { type => 'text', text => 'one' } ]));
is($r->{json}{usage}{prompt_tokens}, $prompt, 'parts are the same prompt');
ok($r->{json}{usage}{prompt_tokens_details}{cached_tokens}, 'and cached');

$r = post($e, '/v1/chat/completions', chat('one', cache_salt => 'x'));
is($r->{json}{usage}{prompt_tokens_details}{cached_tokens}, 0,
   'a salt of its own');

is(post($e, '/v1/chat/completions', chat('one', model => 'x'))->{status},
   404, 'unknown model');
is(post($e, '/v1/chat/completions', '{"messages"')->{status}, 400,
   'broken JSON');
is(post($e, '/v1/chat/completions', chat('x', max_tokens => 200000))
   ->{status}, 400, 'too long a context');


# --- a conversation ----------------------------------------------------------

my @turns = ({ role => 'user', content => 'tell me a long story ' x 10 });
my ($total, $ok) = (0, 1);

for (1 .. 4) {
    $r = post($e, '/v1/chat/completions',
              { messages => \@turns, max_tokens => 100, ignore_eos => \1 });

    my $u = $r->{json}{usage};
    my $cached = $u->{prompt_tokens_details}{cached_tokens} || 0;

    # the last turn's prompt and reply, but for less than a block

    $ok &&= $total == 0 || ($cached > $total - 17 && $cached <= $total);
    $total = $u->{total_tokens};

    push @turns, $r->{json}{choices}[0]{message},
                 { role => 'user', content => "and then? $_ " x 5 };
}

ok($ok, 'replies are cached as they come back');


my @once = ({ role => 'user', content => 'a' },
            { role => 'assistant', content => 'b' },
            { role => 'user', content => 'c' });
my @thought = map { { %$_ } } @once;
$thought[1]{reasoning_content} = 'hm ' x 50;

is(post($e, '/v1/chat/completions', { messages => \@thought })
   ->{json}{usage}{prompt_tokens},
   post($e, '/v1/chat/completions', { messages => \@once })
   ->{json}{usage}{prompt_tokens}, 'old reasoning is not rendered');


# --- streams -----------------------------------------------------------------

$r = post($e, '/v1/chat/completions', chat('one', stream => \1));
like($r->{headers}{'content-type'}, qr{^text/event-stream}, 'content type');
my @ev = events($r->{body});
is(join('', map { ref $_->[1] ? $_->[1]{choices}[0]{delta}{content} : '' }
            @ev), $content, 'a stream has the same text');
is($ev[-1][1], '[DONE]', 'DONE');
is($ev[0][1]{choices}[0]{delta}{role}, 'assistant', 'role first');
is(scalar(@ev), 10, 'an event a token');
is($ev[-2][1]{choices}[0]{finish_reason}, 'length', 'finish reason at last');
unlike($r->{body}, qr/usage/, 'no usage unless asked for');

$r = post($e, '/v1/chat/completions',
          chat('one', stream => \1,
               stream_options => { include_usage => \1 }));
@ev = events($r->{body});
is_deeply($ev[-2][1]{choices}, [], 'usage in a chunk of its own');
is($ev[-2][1]{usage}{completion_tokens}, 8, 'completion tokens');
ok($ev[-2][1]{usage}{prompt_tokens_details}{cached_tokens}, 'cached tokens');

$r = post($e, '/v1/chat/completions', chat('rs', stream => \1),
          { 'X-Engine-Reasoning-Tokens' => 10,
            'X-Engine-Output-Tokens' => 40 });
@ev = events($r->{body});
my $thought = join '', map { ref $_->[1]
    ? $_->[1]{choices}[0]{delta}{reasoning_content} // '' : '' } @ev;
is(length $thought, 40, 'reasoning');


# --- tools -------------------------------------------------------------------

my $tool = { type => 'function', function => {
    name => 'search', description => 'find things',
    parameters => { type => 'object', properties => {
        input => { type => 'string' } } } } };

my $with_tool = chat('find it', tools => [ $tool ], max_tokens => 60,
                     ignore_eos => \1);

$r = post($e, '/v1/chat/completions', $with_tool,
          { 'X-Engine-Tool-Call' => 1 });
is($r->{json}{choices}[0]{finish_reason}, 'tool_calls', 'a tool is called');

my $message = $r->{json}{choices}[0]{message};
my $call = $message->{tool_calls}[0];
is($call->{function}{name}, 'search', 'its name');
ok($json->decode($call->{function}{arguments})->{input}, 'its arguments');
$total = $r->{json}{usage}{total_tokens};

$with_tool->{messages} = [ @{$with_tool->{messages}}, $message,
    { role => 'tool', tool_call_id => $call->{id}, content => 'found' } ];
$r = post($e, '/v1/chat/completions', $with_tool);
my $cached = $r->{json}{usage}{prompt_tokens_details}{cached_tokens};
ok($cached > $total - 17 && $cached <= $total, 'the call is cached too');

$r = post($e, '/v1/chat/completions',
          { %$with_tool, stream => \1 }, { 'X-Engine-Tool-Call' => 1 });
my $args = join '', map { ref $_->[1]
    ? $_->[1]{choices}[0]{delta}{tool_calls}[0]{function}{arguments} // ''
    : '' } events($r->{body});
ok(eval { $json->decode($args) }, 'streamed arguments');


# --- other APIs --------------------------------------------------------------

$r = post($e, '/v1/completions', { prompt => 'x' x 100, max_tokens => 3 });
is($r->{json}{usage}{prompt_tokens}, 25, 'completions');
is(length $r->{json}{choices}[0]{text}, 12, 'its text');

$r = post($e, '/v1/completions',
          { prompt => [ 'a' x 40, 'b' x 80 ], max_tokens => 3, n => 2 });
is(scalar @{$r->{json}{choices}}, 4, 'two prompts, two replies each');
is($r->{json}{usage}{prompt_tokens}, 30, 'each prompt is counted once');
is($r->{json}{usage}{completion_tokens}, 12, 'each reply too');

$r = post($e, '/v1/completions', { prompt => [ 1 .. 50 ], max_tokens => 3 });
is($r->{json}{usage}{prompt_tokens}, 50, 'token ids');
$r = post($e, '/v1/completions',
          { prompt => [ [ 1 .. 49 ], [ 1 .. 9 ] ], max_tokens => 3,
            stream => \1 });
is(scalar(grep { ref $_->[1] && $_->[1]{choices}[0]{finish_reason} }
          events($r->{body})), 2, 'a stream of two sequences');

is(post($e, '/v1/completions', { prompt => [] })->{status}, 400, 'no prompt');

$r = post($e, '/v1/embeddings', { input => [ 'a', 'b' ], dimensions => 4 });
is(scalar @{$r->{json}{data}}, 2, 'embeddings');
is(scalar @{$r->{json}{data}[1]{embedding}}, 4, 'dimensions');

my $said = { input => 'count to ten, please ' x 10, max_output_tokens => 20,
             instructions => 'Be kind.' };
$r = post($e, '/v1/responses', $said);
is($r->{json}{output}[0]{content}[0]{text} =~ tr/a-z //, 80, 'responses');
$total = $r->{json}{usage}{total_tokens};
ok(exists $r->{json}{usage}{input_tokens_details}{cached_tokens},
   'cached tokens there');

my $id = $r->{json}{id};
$r = post($e, '/v1/responses',
          { %$said, input => 'go on', previous_response_id => $id });
$cached = $r->{json}{usage}{input_tokens_details}{cached_tokens};
ok($cached > $total - 17 && $cached <= $total, 'continued');
is(post($e, '/v1/responses', { %$said, previous_response_id => $id }, {}, 1)
   ->{status}, 404, 'another replica does not know it');

# asked for by its id, at the replica that has it

is(get($e, "/v1/responses/$id")->{json}{output}[0]{type},
   'message', 'a response that was kept');
is(get($e, "/v1/responses/$id", 1)->{status}, 404,
   'not elsewhere');
is(scalar @{get($e, "/v1/responses/$id/input_items")->{json}{data}},
   2, 'what was said');
is(post($e, "/v1/responses/$id/cancel", {})->{status}, 400, 'it is over');
ok(request($e, 0, 'DELETE', "/v1/responses/$id")->{json}{deleted}, 'deleted');
is(get($e, "/v1/responses/$id")->{status}, 404, 'gone');

$r = post($e, '/v1/responses', { %$said, background => \1 });
is($r->{json}{status}, 'queued', 'in the background');
$id = $r->{json}{id};
await('and done', sub { get($e, "/v1/responses/$id")->{json}{status}
                        eq 'completed' });

# computed anew: nothing of the prompt is looked up, but it is kept

{
    my $ask = { prompt => 'likely? ' x 60, max_tokens => 1 };
    my $hit = sub { my $d = post($e, '/v1/completions', { %$ask, @_ })
                            ->{json}{usage}{prompt_tokens_details};
                    return $d ? $d->{cached_tokens} : 0; };

    is($hit->(prompt_logprobs => 0), 0, 'prompt_logprobs: not cached');
    cmp_ok($hit->(), '>', 90, 'but found later');
    is($hit->(prompt_logprobs => 1), 0, 'prompt_logprobs: not looked up');
    is($hit->(echo => \1, logprobs => 1), 0, 'nor by echo with logprobs');
    cmp_ok($hit->(echo => \1), '>', 90, 'echo alone is nothing special');
    is(post($e, '/v1/completions', { %$ask, truncate_prompt_tokens => 20 })
       ->{json}{usage}{prompt_tokens}, 20, 'cut to its last tokens');
}

$r = post($e, '/v1/responses', { %$said, stream => \1 });
@ev = events($r->{body});
is(join(' ', map { $_->[0] } grep { $_->[0] !~ /delta/ } @ev),
   'response.created response.in_progress response.output_item.added '
   . 'response.content_part.added response.output_text.done '
   . 'response.content_part.done response.output_item.done '
   . 'response.completed', 'events of responses');
is(join(',', map { $_->[1]{sequence_number} } @ev),
   join(',', 0 .. $#ev), 'numbered');

my $billing = 'x-anthropic-billing-header: cc_version=1; cch=';
my $claude = sub {
    return { model => 'emulated', max_tokens => 6,
             system => [ { type => 'text', text => $billing . $_[0] },
                         { type => 'text', text => 'You are kind. ' x 20 } ],
             messages => [ { role => 'user', content => [
                 { type => 'text', text => 'hello', cache_control =>
                   { type => 'ephemeral' } } ] } ] };
};

$r = post($e, '/v1/messages', $claude->('aaa'));
is($r->{json}{stop_reason}, 'max_tokens', 'messages');
my $u = $r->{json}{usage};
$r = post($e, '/v1/messages', $claude->('bbb'));
is($r->{json}{usage}{cache_read_input_tokens}
   + $r->{json}{usage}{input_tokens}, $u->{input_tokens},
   'the billing header is not part of the prompt');
ok($r->{json}{usage}{cache_read_input_tokens}, 'so the cache is of use');
is(post($e, '/v1/messages/count_tokens', $claude->('c'))
   ->{json}{input_tokens}, $u->{input_tokens}, 'count_tokens');

$r = post($e, '/v1/messages', { %{$claude->('c')}, stream => \1 });
@ev = events($r->{body});
is(join(' ', map { $_->[0] } grep { $_->[0] ne 'content_block_delta' } @ev),
   'message_start content_block_start content_block_stop message_delta '
   . 'message_stop', 'events of messages');
is($ev[-2][1]{usage}{output_tokens}, 6, 'usage at the end');
ok($ev[0][1]{message}{usage}{cache_read_input_tokens}, 'and at the start');

$r = post($e, '/v1/messages', { model => 'emulated' });
is($r->{json}{type}, 'error', 'its errors');


# --- HTTP --------------------------------------------------------------------

my $s = conn($e);
my $body = $json->encode(chat('keep'));

send_request($s, 'POST', '/v1/chat/completions', $body);
is(response($s)->{status}, 200, 'first of a connection');
send_request($s, 'POST', '/v1/chat/completions', $body);
is(response($s)->{status}, 200, 'second of a connection');

my $stream = $json->encode(chat('keep', stream => \1));
send_request($s, 'POST', '/v1/chat/completions', $stream);
is(response($s)->{end}, 'complete', 'a stream in it');
send_request($s, 'GET', '/health');
is(response($s)->{status}, 200, 'and another one behind it');

my $two = '';
send_request($s, 'POST', '/v1/chat/completions', $stream);
send_request($s, 'GET', '/v1/models');
is(response($s, \$two)->{end}, 'complete', 'pipelined');
like(response($s, \$two)->{body}, qr/emulated/, 'the second one as well');

$s = conn($e);
send_request($s, 'POST', '/v1/chat/completions', $body, {}, '1.0');
$r = response($s);
is($r->{status}, 200, 'HTTP/1.0');

$s = conn($e);
send_request($s, 'POST', '/v1/chat/completions', $stream, {}, '1.0');
$r = response($s);
like($r->{body}, qr/\[DONE\]\n\n$/, 'HTTP/1.0, a stream');
unlike($r->{body}, qr/^[0-9a-f]+\r\n/, 'not chunked');

$s = conn($e);
send_request($s, 'POST', '/v1/chat/completions', undef,
             { 'Transfer-Encoding' => 'chunked' });
for (my $at = 0; $at < length $body; $at += 37) {
    my $piece = substr($body, $at, 37);
    syswrite($s, sprintf("%x\r\n%s\r\n", length $piece, $piece));
}
syswrite($s, "0\r\n\r\n");
is(response($s)->{status}, 200, 'a chunked body');

$s = conn($e);
send_request($s, 'POST', '/v1/chat/completions', undef,
             { 'Content-Length' => length $body, Expect => '100-continue' });
my $in = '';
ok(until_match($s, \$in, qr/^HTTP\/1.1 100 .*?\r\n\r\n/s), 'continue');
$in =~ s/^HTTP\/1.1 100 .*?\r\n\r\n//s;
syswrite($s, $body);
is(response($s, \$in)->{status}, 200, 'continued');

my $before = control($e)->{body_bytes};
my $large = $json->encode(chat('y' x 400_000));
$r = post($e, '/v1/chat/completions', $large);
is($r->{status}, 200, 'a large body');
is(control($e)->{body_bytes} - $before, length $large, 'all of it is read');

my $image = { type => 'image_url',
              image_url => { url => 'data:image/png;base64,'
                                    . 'QUJD' x 5_000_000 } };
$r = post($e, '/v1/chat/completions',
          chat([ $image, { type => 'text', text => 'what is this?' } ]));
is($r->{status}, 200, '20 MB of image');
ok($r->{json}{usage}{prompt_tokens} < 1000, 'are as many tokens as any');


# --- faults ------------------------------------------------------------------

sub fault {
    my ($name, $body, %headers) = @_;
    return post($e, '/v1/chat/completions', $body,
                { 'X-Engine-Fault' => $name, %headers });
}

$r = fault('status=429', chat('f'), 'X-Engine-Retry-After' => 7);
is($r->{status}, 429, 'a status');
is($r->{headers}{'retry-after'}, 7, 'Retry-After');
ok($r->{json}{error}{message}, 'an error of vLLM');
is(fault('nonsense', chat('f'))->{status}, 400, 'no such fault');

my $long = chat('f', stream => \1, max_tokens => 50, ignore_eos => \1);

$r = fault('reset-before-headers', $long);
is($r->{end} . $r->{status}, 'none0', 'reset before headers');
$r = fault('close-before-headers', $long);
is($r->{end} . $r->{raw}, 'none', 'closed before headers');
$r = fault('reset-after-headers', $long);
is($r->{end} . $r->{status}, 'short200', 'reset after headers');
is($r->{body}, '', 'and no body');
$r = fault('reset-mid-stream=5', $long);
is($r->{end}, 'short', 'reset in mid-stream');
is(() = $r->{body} =~ /"content":"\w/g, 5, 'after five tokens');
$r = fault('truncate=5', $long);
is($r->{end}, 'short', 'truncated stream');
$r = fault('truncate', chat('f'));
is($r->{end}, 'short', 'truncated body');
ok(length $r->{body}, 'half of it');
$r = fault('garbage', chat('f'));
is($r->{end}, 'none', 'not HTTP');
ok(length $r->{raw}, 'but something');
$r = fault('garbage-body', chat('f'));
is($r->{status}, 200, 'HTTP, but not JSON');
ok(!$r->{json}, 'indeed not');
$r = fault('error-in-stream=2', $long);
like($r->{body}, qr/data: \{"error":.*\n\ndata: \[DONE\]\n\n$/s,
     'an error in a stream');
is($r->{end}, 'complete', 'which ends well');
like(fault('client-error-in-stream=2', $long)->{body},
     qr/data: \{"error":.*"code":400/, "the client's");
unlike(fault('bare-error-in-stream=2', $long)->{body}, qr/"code"/, 'nobody\'s');
$r = fault('error-in-body', chat('f'));
is($r->{status}, 200, 'served');
is($r->{json}{error}{code}, 500, 'with nothing but an error');
$r = fault('empty-stream', $long);
is("$r->{status} $r->{end}", '200 complete', 'a stream');
unlike($r->{body}, qr/choices/, 'of nothing');

$r = fault('stall=3', $long, 'X-Engine-Stall-Ms' => 30);
is($r->{end}, 'complete', 'a stall that passes');
$r = fault('slow=2', $long);
is($r->{end}, 'complete', 'a slow stream');

$s = conn($e);
$before = control($e);
send_request($s, 'POST', '/v1/chat/completions', $json->encode($long),
             { 'X-Engine-Fault' => 'stall=3' });
$in = '';
until_match($s, \$in, qr/(?:"content":"\w.*){3}/s);
my $c = control($e);
is($c->{open_streams}, 1, 'a stalled stream is open');
is($c->{aborted}, $before->{aborted}, 'not aborted yet');
close $s;
await('its end is noticed', sub { control($e)->{open_streams} == 0 });
is(control($e)->{aborted}, $before->{aborted} + 1, 'as an abort');

$s = conn($e);
send_request($s, 'POST', '/v1/chat/completions', $body,
             { 'X-Engine-Fault' => 'hang' });
await('a request hangs', sub { control($e)->{open_requests} == 1 });
close $s;
await('until the client goes', sub { control($e)->{open_requests} == 0 });

is(post($e, '/v1/chat/completions', chat('f'),
        { 'X-Engine-Delay-Ms' => 5 })->{status}, 200, 'a delay');
$s = conn($e);
send_request($s, 'POST', '/v1/chat/completions', $body,
             { 'X-Engine-Delay-Ms' => 3600000 });
await('a long one', sub { control($e)->{open_requests} == 1 });
close $s;
await('is given up too', sub { control($e)->{open_requests} == 0 });

control($e, { fault => 'status=503', retry_after => 2 });
$r = post($e, '/v1/chat/completions', chat('f'));
is($r->{status} . ' ' . $r->{headers}{'retry-after'}, '503 2', 'retry_after');
control($e, { retry_after => -1 });

control($e, { fault => 'status=500', fault_count => 2 });
is(join(' ', map { post($e, '/v1/chat/completions', chat('f'))->{status} }
            1 .. 3), '500 500 200', 'fault_count');
control($e, { fault => undef, fault_count => -1 });

is(post($e, '/control', { no_such_thing => 1 })->{status}, 400,
   'control knows its words');
is(post($e, '/control', { fault => 'x' })->{status}, 400, 'all of them');
control($e, { health_status => 503 });
is(get($e, '/health')->{status}, 503, 'health alone can fail');
is(post($e, '/v1/chat/completions', chat('f'))->{status}, 200, 'alone');
control($e, { health_status => 0 });

control($e, { keepalive_timeout => 0.05 });
$s = conn($e);
send_request($s, 'GET', '/health');
response($s);
$in = '';
is(slurp($s, \$in), 'closed', 'an idle connection is closed');
control($e, { keepalive_timeout => 5, keepalive_max => 2 });
$s = conn($e);
send_request($s, 'GET', '/health');
is(response($s)->{headers}{connection}, undef, 'one of two');
send_request($s, 'GET', '/health');
is(lc response($s)->{headers}{connection}, 'close', 'two of two');
control($e, { keepalive_max => 0 });

$r = get($e, '/control?log=1');
ok((grep { ($_->{id} || '') eq 'r1' } @{$r->{json}{log}})
   || $r->{json}{logged} > 50, 'the log');
is($r->{json}{log}[-1]{path}, '/v1/chat/completions', 'its last entry');


# --- restart, down -----------------------------------------------------------

post($e, '/v1/chat/completions', chat('warm'));
ok(post($e, '/v1/chat/completions', chat('warm'))
   ->{json}{usage}{prompt_tokens_details}{cached_tokens}, 'warm');

my $old = value(get($e, '/metrics')->{body}, 'process_start_time_seconds');
$s = conn($e);
send_request($s, 'POST', '/v1/chat/completions', $json->encode($long),
             { 'X-Engine-Fault' => 'stall=3' });
$in = '';
until_match($s, \$in, qr/(?:"content":"\w.*){3}/s);
control($e, { restart => \1 });
slurp($s, \$in);
unlike($in, qr/\[DONE\]/, 'a restart breaks streams');
my $metrics = get($e, '/metrics')->{body};
ok(value($metrics, 'process_start_time_seconds') > $old, 'start time');
is(value($metrics, 'vllm:prompt_tokens_total{engine="0",'
                   . 'model_name="emulated"}'), 0, 'counters');
is(post($e, '/v1/chat/completions', chat('warm'))
   ->{json}{usage}{prompt_tokens_details}{cached_tokens}, 0, 'cold');

post($e, '/v1/chat/completions', chat('warm'));
is(post($e, '/reset_prefix_cache', '')->{status}, 200, 'reset the cache');
is(post($e, '/v1/chat/completions', chat('warm'))
   ->{json}{usage}{prompt_tokens_details}{cached_tokens}, 0, 'cold again');

is(post($e, '/control?replica=1', { down => \1 })->{json}{down}, 1, 'down');
is(get($e, '/health', 1)->{end}, 'refused', 'refuses connections');
post($e, '/control?replica=1', { down => \0 });
is(get($e, '/health', 1)->{status}, 200, 'up');
post($e, '/control?replica=1', { down_s => 0.05 });
await('up by itself',
      sub { (get($e, '/health', 1)->{status} || 0) == 200 });

control($e, { loading_s => 3600 });
is(get($e, '/health')->{status}, 503, 'loading');
is(post($e, '/v1/chat/completions', chat('f'))->{status}, 503, 'everywhere');
control($e, { loading_s => 0 });
is(get($e, '/health')->{status}, 200, 'loaded');


# --- metrics -----------------------------------------------------------------

$metrics = get($e, '/metrics')->{body};
my $label = '{engine="0",model_name="emulated"}';

for my $name (qw(num_requests_running num_requests_waiting kv_cache_usage_perc
                 prefix_cache_queries_total prefix_cache_hits_total
                 prompt_tokens_total generation_tokens_total
                 num_preemptions_total prefix_cache_queries_created))
{
    ok(defined value($metrics, "vllm:$name$label"), $name);
}

like($metrics, qr/^vllm:num_requests_waiting_by_reason\{engine="0",
     model_name="emulated",reason="capacity"\}\ 0\.0$/mx, 'by reason');
like($metrics, qr/^vllm:cache_config_info\{block_size="16",.*
     num_gpu_blocks="28125".*\}\ 1\.0$/mx, 'cache config');
like($metrics, qr/^vllm:time_to_first_token_seconds_bucket\{engine="0",
     le="\+Inf",model_name="emulated"\}\ \d/mx, 'histogram');
like($metrics, qr/process_start_time_seconds 1\.\d+e\+09/, 'Go numbers');

control($e, { kv_cache_size => 1000 });
like(get($e, '/metrics')->{body}, qr/num_gpu_blocks="1000"/, 'capacity');

control($e, { metrics => 'frozen' });
$metrics = get($e, '/metrics')->{body};
post($e, '/v1/chat/completions', chat('frozen?'));
is(get($e, '/metrics')->{body}, $metrics, 'frozen');
control($e, { metrics => 'huge' });
ok(length get($e, '/metrics')->{body} > 10_000_000, '10 MB');
control($e, { metrics => 'garbage' });
like(get($e, '/metrics')->{body}, qr/1e999/, 'garbage');
control($e, { metrics => '404' });
is(get($e, '/metrics')->{status}, 404, 'not found');
control($e, { metrics => 'empty' });
is(get($e, '/metrics')->{body}, '', 'empty');
control($e, { metrics => 'ok', metrics_delay_ms => 20 });
like(get($e, '/metrics')->{body}, qr/num_requests_running/, 'delayed');
$s = conn($e);
control($e, { metrics_delay_ms => 3600000 });
send_request($s, 'GET', '/metrics');
await('a scrape waits', sub { control($e)->{open_connections} == 2 });
close $s;
await('and is given up', sub { control($e)->{open_connections} == 1 });
is(stop($e), 0, 'a clean end');


# --- other engines -----------------------------------------------------------

$e = engine(1, '--engine', 'sglang', '--hardware', 'none',
            '--enable-cache-report');
post($e, '/v1/chat/completions', chat('one'));
$r = post($e, '/v1/chat/completions', chat('one', model => 'any'));
ok($r->{json}{usage}{prompt_tokens_details}{cached_tokens}, 'SGLang, chat');
$r = get($e, '/v1/loads?include=core');
is($r->{json}{loads}[0]{max_total_num_tokens}, 450000, 'loads');
is($r->{json}{loads}[0]{num_waiting_reqs}, 0, 'waiting');
like(get($e, '/v1/loads?format=prometheus')->{body},
     qr/^sglang_num_running_reqs\{dp_rank="0"\} 0$/m, 'as text');
$metrics = get($e, '/metrics')->{body};
like($metrics, qr/^sglang:$_\{engine_type="unified",model_name="emulated",
     pp_rank="0",tp_rank="0"\}\ [\d.e+]+$/mx, $_)
    for qw(num_running_reqs num_queue_reqs token_usage max_total_num_tokens
           prompt_tokens_total);
like($metrics, qr/^sglang:cached_tokens_total\{cache_source="device",/m,
     'cached_tokens_total');
is(get($e, '/reset')->{status}, 404, 'no such thing');
is(stop($e, 'INT'), 0, 'SIGINT');

$e = engine(1, '--engine', 'llamacpp', '--hardware', 'none',
            '--max-num-seqs', 4);
is(get($e, '/health')->{body}, '{"status":"ok"}', 'llama.cpp');
post($e, '/v1/chat/completions', chat('one', model => 'any'));
$r = post($e, '/v1/chat/completions', chat('one'));
my $n = $r->{json}{usage}{prompt_tokens_details}{cached_tokens};
ok($n, 'cached tokens without a flag');
is($r->{json}{timings}{cache_n}, $n, 'timings');
like($r->{headers}{'keep-alive'}, qr/timeout=5, max=100/, 'keep-alive');
$r = post($e, '/v1/chat/completions',
          chat('one', stream => \1,
               stream_options => { include_usage => \1 }));
@ev = events($r->{body});
is($ev[-2][1]{timings}{cache_n}, $n, 'timings at the end');
like(get($e, '/metrics')->{body}, qr/^llamacpp:requests_processing 0$/m,
     'metrics without labels');
$r = post($e, '/v1/messages', $claude->('x'));
$r = post($e, '/v1/messages', $claude->('y'));
ok($r->{json}{usage}{cache_read_input_tokens}, 'messages');
stop($e);

$e = engine(1, '--engine', 'tgi', '--hardware', 'none');
like(get($e, '/metrics')->{body}, qr/^tgi_queue_size 0\.0$/m, 'metrics');
stop($e);

$e = engine(1, '--engine', 'trtllm', '--hardware', 'none',
            '--block-size', 32);
post($e, '/v1/chat/completions', chat('one'));
like(get($e, '/prometheus/metrics')->{body},
     qr/^trtllm_kv_cache_tokens_per_block\{.*\} 32\.0$/m, 'TensorRT-LLM');
is(get($e, '/metrics')->{json}[0]{kvCacheStats}{tokensPerBlock}, 32,
   'iteration statistics');
is_deeply(get($e, '/metrics')->{json}, [], 'are gone once read');
stop($e);

$e = engine(1, '--engine', 'vllm-old', '--hardware', 'none',
            '--enable-prompt-tokens-details');

$metrics = get($e, '/metrics')->{body};
is(value($metrics, "vllm:$_" . '{model_name="emulated"}'), 0, $_)
    for qw(gpu_cache_usage_perc num_requests_swapped
           gpu_prefix_cache_queries_total gpu_prefix_cache_hit_rate);
is(post($e, '/v1/chat/completions', chat('one'))
   ->{json}{usage}{prompt_tokens_details}, undef, 'vllm-old: no details at 0');
stop($e);

$e = engine(1, '--hardware', 'none', '--served-model-name', 'one', 'two',
            '--lora-modules', 'sql', '{"name": "chat", "path": "x"}',
            '--metrics-engines', 3, '--disable-metrics=false');
is(scalar @{get($e, '/v1/models')->{json}{data}}, 4, 'names and adapters');
is(get($e, '/v1/models')->{json}{data}[3]{parent}, 'one', 'parent');
post($e, '/v1/chat/completions', chat('x', model => 'two'));
$r = post($e, '/v1/chat/completions', chat('x', model => 'chat'));
is($r->{status}, 200, 'an adapter');
$metrics = get($e, '/metrics')->{body};
is(() = $metrics =~ /^vllm:num_requests_running\{engine="\d"/mg, 3,
   'a series per rank');
stop($e);


# --- time --------------------------------------------------------------------

$e = engine(1, '--time-to-first-token', '3600s');
$s = conn($e);
send_request($s, 'POST', '/v1/chat/completions', $stream);
$in = '';
ok(until_match($s, \$in, qr/\r\n\r\n/), 'headers before a token');
unlike($in, qr/data:/, 'and nothing else');

my $s2 = conn($e);
send_request($s2, 'POST', '/v1/responses',
             $json->encode({ input => 'x', stream => \1 }));
my $in2 = '';
ok(until_match($s2, \$in2, qr/event: response\.in_progress\n/),
   'vLLM announces a response before it computes');

is(control($e)->{open_streams}, 2, 'two open streams');
close $s;
close $s2;
await('no open streams', sub { control($e)->{open_streams} == 0 });
stop($e);

$e = engine(1, '--speed', 50, '--max-num-seqs', 2, '--output-tokens', 4000,
            '--kv-cache-size', 600);
my @s = map { conn($e) } 0 .. 2;
send_request($s[$_], 'POST', '/v1/chat/completions',
             $json->encode({ messages => [ { role => 'user',
                                             content => "n $_" } ],
                             stream => \1 })) for 0 .. 2;
my @in = ('', '', '');
ok(until_match($s[0], \$in[0], qr/"content":"\w/), 'the first one runs');
await('two run, one waits', sub {
    my $c = control($e);
    return $c->{running} == 2 && $c->{waiting} == 1;
});
close $s[0];
ok(until_match($s[2], \$in[2], qr/"content":"\w/), 'now the third one runs');
is(control($e)->{running}, 2, 'two of them');
close $_ for @s[1, 2];
await('all blocks are free', sub { control($e)->{kv_blocks_held} == 0 });
stop($e);

# what a decode server is given comes over its link, as fast as that is

sub handed {
    my ($e, $prompt) = @_;
    my $r = post($e, '/v1/completions',
                 { prompt => $prompt, max_tokens => 1, kv_transfer_params =>
                   { do_remote_decode => \1, do_remote_prefill => \0 } });
    return { prompt => $prompt, kv_transfer_params =>
             $json->decode($r->{body})->{kv_transfer_params} };
}

my $words = 'word ' x 800;          # 1000 tokens

$e = engine(2, '--hardware', 'none', '--kv-bandwidth', 1e6,
            '--kv-bytes-per-token', 300);
my $began = time;
is(post($e, '/v1/completions', handed($e, "a $words"), {}, 1)->{status}, 200,
   'a transfer to another replica');
cmp_ok(time - $began, '>=', 0.29, 'takes bytes by bytes a second');
cmp_ok(control($e, undef, 1)->{transferred}, '>=', 1000, 'all of the prompt');
cmp_ok(control($e, undef, 1)->{transferred}, '<', 1010, 'and no more');
is(control($e, undef, 1)->{corrupt}, 0, 'by its descriptor');

$began = control($e, undef, 1)->{transferred};
post($e, '/v1/completions', handed($e, "a $words" . 'more ' x 80), {}, 1);
cmp_ok(control($e, undef, 1)->{transferred} - $began, '<', 150,
       'then what it has not cached');
stop($e);

$e = engine(2, '--hardware', 'none', '--kv-bandwidth', 1);
$s = conn($e, 1);
send_request($s, 'POST', '/v1/completions',
             $json->encode(handed($e, "b $words")));
await('a transfer that takes years', sub { control($e, undef, 1)->{transferred} });
is(post($e, '/v1/completions', { prompt => "c $words" }, {}, 1)->{status}, 200,
   'delays nobody who computes');
close $s;
await('and may be left', sub { control($e, undef, 1)->{open_requests} == 0 });
stop($e);

is(system("$engine --time-to-first-token 1h >/dev/null 2>&1") >> 8, 1,
   'an hour is no duration');
is(system("$engine --no-such-flag >/dev/null 2>&1") >> 8, 1, 'a bad flag');
is(system("$engine --engine x >/dev/null 2>&1") >> 8, 1, 'a bad value');
is(system("$engine --help >/dev/null 2>&1") >> 8, 0, 'help');

done_testing();
