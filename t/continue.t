#!/usr/bin/perl

# kvroute_continue: a broken answer continues at another server, in the same
# response, and equals an unbroken one; or it ends with an error event.

use JSON::PP;

use lib 't/lib';
use Kvroute;

my $t = Kvroute->new();

my @engine = ('--hardware', 'none', '--inter-token-latency', '1ms', '--continue',
              '--request-log', 500);

$t->engines(1, @engine) for 0 .. 2;
$t->engines(1, @engine, '--engine', 'tgi');
$t->engines(1, @engine, '--engine', 'tgi');
$t->engines(1, @engine);
$t->engines(1, @engine, '--inter-token-latency', '20ms') for 6, 7;

# X-Fault is for the first part of an answer, X-Fault<N> for continuation N

$t->upstream('llm', 'kvroute_eject off;', map { "E$_ max_fails=0" } 0 .. 2);
$t->upstream('tgi', 'kvroute_probe interval=50ms; kvroute_engine tgi;', map { "E$_ max_fails=0" } 3, 4);
$t->upstream('one', 'E5 max_fails=0');
$t->upstream('limited', 'kvroute_eject fails=1000 retry_budget=1%;', map { "E$_ max_fails=0" } 0 .. 2);
$t->upstream('moved', 'kvroute_eject fails=1 retry_budget=1%;', map { "E$_" } 6, 7);
$t->upstream('queue', 'kvroute_queue max=8 timeout=60s;', 'kvroute_eject off;',
             map { "E$_ max_fails=0 max_conns=1" } 0, 1);

# A sick engine: the Nth word of X-Odd chooses its answer for part N

my $chunk = '{"id":"o","created":1,"model":"m","object":"chat.completion.chunk","choices":[{"index":0,"delta":{%s}}]}';

sub delta {
    return "data: " . sprintf($chunk, $_[0]) . "\n\n";
}

my $head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
my $big = delta('"content":"' . 'x' x 1_200_000 . '"');
my $end = sprintf($chunk, '') =~ s/\}\]/,"finish_reason":"stop"}]/r;
my $rest = delta('"content":"two"') . "data: $end\n\ndata: [DONE]\n\n";

my %odd = (
    one => $head . delta('"role":"assistant","content":"one"'),
    rest => $head . $rest,
    big => "$head$big$rest",
    torn => $head . substr($big, 0, 1_100_000),
    redirected => "HTTP/1.1 200 OK\r\nX-Accel-Redirect: /page\r\n\r\n",
    map { $_ => "HTTP/1.1 $_ X\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}" }
        qw(401 404 422 429 503)
);

$t->serve('O', sub {
    my ($c) = @_;
    my $data = '';

    while ($data !~ /\r\n\r\n.*\}\z/s) {
        sysread($c, $data, 1 << 20, length $data) or return;
    }

    my @words = split /,/, $data =~ /^X-Odd: (\S+)/m ? $1 : '';
    my ($part) = $data =~ /^X-Part: (\d+)/m;
    my $text = $odd{$words[$part || 0]};

    for (my $n = 0; $n < length $text; ) {
        $n += syswrite($c, $text, length($text) - $n, $n) or return;
    }
});

$t->upstream('odd', 'kvroute_eject off;', 'O max_fails=0');

$t->{vars}{H2} = $t->port();
my $legs = 'kvroute_first_token 30s; proxy_pass http://llm/;';
$t->{vars}{LEGS} = $t->has('prefill') ? "location /legs/ { kvroute_prefill one min=1k!; $legs }" : '';

$t->conf(<<'EOC')->run();
    log_format kv '$http_x_n $kvroute_continued $kvroute_cut';
    log_format tokens '$http_x_n tokens $kvroute_prompt_tokens $kvroute_completion_tokens';
    access_log %%DIR%%/access.log kv;
    access_log %%DIR%%/access.log tokens;

    kvroute_zone zone=z:4m;

    map $kvroute_continued $fault {
        volatile;
        default none;
        "" $http_x_fault;
        0 $http_x_fault;
        1 $http_x_fault1;
        2 $http_x_fault2;
        3 $http_x_fault3;
    }

    proxy_http_version 1.1;
    proxy_set_header Connection "";
    proxy_set_header X-Engine-Fault $fault;
    proxy_buffering off;
    proxy_read_timeout 1s;
    kvroute_continue on;

    gzip_types text/event-stream;
    gzip_min_length 1;

    location / { proxy_pass http://llm/; }
    location /buffered/ { proxy_buffering on; proxy_pass http://llm/; }
    location /file/ { client_body_buffer_size 1k; proxy_pass http://llm/; }
    location /off/ { kvroute_continue off; proxy_pass http://llm/; }
    location /once/ { kvroute_continue 1; proxy_pass http://llm/; }
    location /salted/ { kvroute_salt $http_x_salt; proxy_pass http://llm/; }
    location /usage/ { kvroute_continue on usage=on; proxy_pass http://llm/; }
    location /only/ {
        kvroute_continue 0 usage=on;
        client_body_buffer_size 1k;
        proxy_pass http://llm/;
    }
    location /tgi/ { proxy_pass http://tgi/; }
    %%LEGS%%
    location /one/ { proxy_pass http://one/; }
    location /limited/ { kvroute_continue 100; proxy_pass http://limited/; }
    location /queue/ { proxy_read_timeout 60s; proxy_pass http://queue/; }
    location /moved/ { proxy_pass http://moved/; }
    location /odd/ {
        proxy_set_header X-Part $kvroute_continued;
        proxy_next_upstream off;
        proxy_pass http://odd/;
    }
    location /ssi/ { ssi on; ssi_types text/event-stream; proxy_pass http://llm/; }
    location /page { return 200 "the page"; }
    location /unbuffered/ { proxy_request_buffering off; proxy_pass http://llm/; }
    location /api/ { kvroute_api write=on; access_log off; }

    server { listen 127.0.0.1:%%H2%% http2; location / { gzip on; proxy_pass http://llm; } }
EOC


my $true = JSON::PP::true;
my $n = 0;

my %paths = (chat => '/v1/chat/completions', text => '/v1/completions');

sub body {
    my ($kind, %arg) = @_;

    my %body = (model => 'emulated', stream => $true, max_tokens => 20,
        stream_options => { include_usage => $true },
        $kind eq 'chat' ? (messages => [{ role => 'user', content => 'hello' }])
                        : (prompt => 'once upon a time'), %arg);

    return encode_json({ map { $_ => $body{$_} } grep { ($body{$_} // '') ne 'absent' } keys %body });
}

# returns the access log's fields for a request

sub logged {
    my ($n) = @_;
    my $line;

    wait_for(sub { ($line) = $t->access_log() =~ /^$n (.*)$/m });
    return $line;
}

# sends a request with faults; reads the events like a client

sub ask {
    my ($where, $kind, $arg, @faults) = @_;

    my %headers = ('X-N' => ++$n);
    $headers{'X-Fault' . ($_ || '')} = $faults[$_] for 0 .. $#faults;
    my $more = delete $arg->{headers} || {};
    my $chunked = delete $arg->{chunked};

    my $r = $t->post("$where$paths{$kind}", body($kind, %$arg), chunked => $chunked,
                     headers => { %headers, %$more });

    return events($r, $n);
}

sub events {
    my ($r, $n) = @_;

    my %a = (complete => $r->{complete}, text => '', done => 0, bad => 0, roles => 0,
             status => $r->{status}, error => 0, log => logged($n), after => 0);
    my (%same, %seen);

    for my $event (split /\n\n/, $r->{body}) {
        next if $event =~ /^:/;
        $a{after}++ if $a{done};
        my ($data) = $event =~ /^data: (.*)\z/ or $a{bad}++, next;

        if ($data eq '[DONE]') {
            $a{done}++;
            next;
        }

        my $e = eval { decode_json($data) } or $a{bad}++, next;

        $a{error}++, next if $e->{error};
        $seen{$_}{$e->{$_} // 'none'}++ for qw(id created model object);

        my $c = $e->{choices}[0];
        $a{text} .= $c->{delta}{content} // $c->{text} // '' if $c;
        $a{roles}++ if $c && $c->{delta}{role};
        $a{finish} = $c->{finish_reason} if $c && $c->{finish_reason};
        $a{usage} = $e->{usage} if $e->{usage};
    }

    $a{bad} += grep { keys %$_ != 1 } values %seen;
    $a{bad} += $r->{body} !~ /\n\n\z/;

    return \%a;
}

my %whole = map { $_ => ask('', $_, {}) } qw(chat text);

sub unbroken {
    my ($a, $kind, $continued, $name) = @_;

    my $w = $whole{$kind};

    is_deeply([@$a{qw(status complete text done bad error after roles finish usage)}],
              [@$w{qw(status complete text done bad error after roles finish usage)}],
              "$name: like an unbroken answer");
    is($a->{log}, "$continued -", "$name: continued $continued");
}

sub cut {
    my ($a, $why, $name) = @_;

    is_deeply([@$a{qw(status complete done bad error after)}], [200, 1, 1, 0, 1, 0],
              "$name: ends with an error event");
    like($a->{log}, qr/^\d $why$/, "$name: $why");
}

# log: the variable is empty for an unbroken answer

is($whole{$_}{finish}, 'length', "$_: whole") for qw(chat text);
is(length $whole{chat}{text}, 80, 'its text');
is($whole{chat}{log}, '0 -', 'unbroken');

# --- all kinds of faults and answers, buffered or not

for my $where ('', '/buffered') {
    for my $kind (qw(chat text)) {
        my $name = $kind . ($where ? ', buffered' : '');

        unbroken(ask($where, $kind, {}, $_), $kind, 1, "$name, $_")
            for qw(reset-mid-stream=5 truncate=5 error-in-stream=5 bare-error-in-stream=5
                   reset-mid-stream=1 reset-mid-stream=19 truncate=0 reset-after-headers);

        unbroken(ask($where, $kind, {}, 'truncate=3', 'reset-mid-stream=4',
                     'error-in-stream=5'), $kind, 3, "$name, three times");
    }

    unbroken(ask($where, 'chat', {}, 'stall=5'), 'chat', 1, "stall $where");
    unbroken(ask($where, 'chat', {}, 'reset-after-headers', 'truncate=5'), 'chat', 2,
             "$where before the first event, and then");
}

unbroken(ask('', 'chat', {}, 'truncate=5', $_), 'chat', 2, "then $_")
    for qw(status=500 status=503 reset-before-headers garbage garbage-body);
unbroken(ask('/one', 'chat', {}, 'truncate=5'), 'chat', 1, 'the only server');

# usage in each event

my $counted = { stream_options => { include_usage => $true, continuous_usage_stats => $true } };
unbroken(ask('', 'chat', { %$counted }, 'truncate=5', 'truncate=3'), 'chat', 2, 'usage in each event');

# --- usage=on: the engine reports usage, and the client does not get it

my $false = JSON::PP::false;

sub spoken {
    my ($n) = @_;

    my $tokens;

    wait_for(sub { ($tokens) = $t->access_log() =~ /^$n tokens (.*)$/m });
    return $tokens;
}

for my $kind (qw(chat text)) {
    my $asked = $whole{$kind}{usage};
    my $tokens = "$asked->{prompt_tokens} $asked->{completion_tokens}";
    my %quiet = (%{$whole{$kind}}, usage => undef);

    for my $options ('absent', undef, {}, { include_usage => $false }, { include_usage => undef },
                     { continuous_usage_stats => $false }) {
        my $name = "$kind, " . encode_json([$options]);

        for my $fault ('none', 'truncate=5') {
            my $a = ask('/usage', $kind, { stream_options => $options }, $fault);

            is_deeply([@$a{qw(status complete text done bad error after roles finish usage)}],
                      [@quiet{qw(status complete text done bad error after roles finish usage)}],
                      "$name, $fault: the client gets no usage");
            is(spoken($n), $tokens, "$name: the log has the usage") if $fault eq 'none';
        }
    }

    my $plain = $t->post("/usage$paths{$kind}",
                         body($kind, stream => $false, stream_options => 'absent'),
                         headers => { 'X-N' => ++$n });
    like($plain->{body}, qr/"usage":\{/,
         "$kind: an answer without a stream has its usage");

    unbroken(ask('/usage', $kind, {}), $kind, 0,
             "$kind: a client that asks gets the usage");

    is(ask('/only', $kind, { stream_options => 'absent',
                             $kind eq 'chat'
                             ? (messages => [{ role => 'user', content => text(20000, 7) }])
                             : (prompt => text(20000, 7)) })->{usage}, undef,
                             "$kind: from a file");
    like(spoken($n), qr/^\d{4} \d+$/, "$kind: the log has the usage");
}

cut(ask('/only', 'chat', { stream_options => 'absent' }, 'truncate=5'), 'tries', 'no tries');

# --- a body in chunks, and one in a file

unbroken(ask('', $_, { chunked => 50 }, 'truncate=5'), $_, 1, "$_: a body in chunks") for qw(chat text);

for my $fault ('none', 'truncate=5') {
    my $long = text(20000, 7);
    my $a = ask('/file', 'chat', { messages => [{ role => 'user', content => $long }] }, $fault);

    is($a->{finish} . $a->{done} . length $a->{text}, 'length180', "a body in a file, $fault");
}

cut(ask('/unbuffered', 'chat', { pad => 'x' x 500_000 }, 'truncate=5'), 'request',
    'an unbuffered body');

unbroken(ask('/ssi', 'chat', {}, 'truncate=5', 'truncate=5'), 'chat', 2, 'through a filter that drops flushes');

# --- a client of HTTP/2, and one that takes gzip

for my $how ('', '--compressed') {
    my $json = body('chat');
    my $out = `curl -s --http2-prior-knowledge $how -H 'X-Fault: truncate=5' -H 'X-Fault1: reset-mid-stream=3' \\
        -H 'X-N: @{[++$n]}' -H 'Content-Type: application/json' -d '$json' http://127.0.0.1:$t->{vars}{H2}$paths{chat}`;

    unbroken(events({ body => $out, status => 200, complete => 1 }, $n), 'chat', 2, "HTTP/2 $how")
        if $out || $t->{version} =~ /http_v2_module/;
}

# --- sick engines

sub odd {
    my ($words) = @_;

    return ask('/odd', 'chat', { headers => { 'X-Odd' => $words } });
}

for my $why (qw(401 404 429 503 redirected)) {
    my $a = odd("one,$why,rest");
    is("$a->{text} $a->{done} $a->{bad} $a->{error} $a->{log}", 'onetwo 1 0 0 2 -', "then $why");
}

cut(odd('one,422'), 'engine', 'the engine rejects the continuation');

for my $words ('big', 'one,big') {
    my $a = odd($words);
    is("$a->{done} $a->{after} $a->{error} " . length $a->{text}, '1 0 0 ' . ($words eq 'big' ? 1_200_003 : 1_200_006),
       "$words: an event longer than max=");
}

my $torn = odd('torn');
is("$torn->{done} $torn->{error} $torn->{log}", '1 1 0 max', 'the end is missing');

# --- answers that are not continued

my @fault = ('truncate=5');
my @assistant = ({ role => 'user', content => 'a' }, { role => 'assistant', content => 'b' });

cut(ask('', 'chat', { n => 2 }, @fault), 'choices', 'two choices');
cut(ask('', 'chat', { logprobs => $true }, @fault), 'logprobs', 'logprobs');
cut(ask('', 'text', { logprobs => 0 }, @fault), 'logprobs', 'logprobs as a number');
cut(ask('', 'chat', { response_format => { type => 'json_object' } }, @fault),
    'structured', 'structured output');
cut(ask('', 'chat', { guided_regex => 'a+' }, @fault), 'structured', 'a grammar');
unbroken(ask('', 'chat', { response_format => { type => 'text' } }, @fault), 'chat', 1,
         'the format "text"');
cut(ask('', 'chat', { messages => \@assistant }, @fault), 'request', 'the client\'s own prefix');
cut(ask('', 'chat', { continue_final_message => $true, add_generation_prompt => JSON::PP::false,
                      messages => \@assistant }, @fault), 'request', 'a client that continues');
cut(ask('', 'text', { prompt => [1, 2, 3] }, @fault), 'request', 'a prompt of tokens');
cut(ask('', 'chat', { headers => { 'X-Engine-Reasoning-Tokens' => 8 } }, 'truncate=6'),
    'reasoning', 'reasoning');
cut(ask('', 'chat', { max_tokens => 100, tools => [{ type => 'function', function => { name => 'f' } }],
                      headers => { 'X-Engine-Tool-Call' => 1 } }, 'truncate=12'),
    'tools', 'a call of a tool');
cut(ask('', 'chat', {}, 'truncate=5', 'status=400'), 'engine', 'an engine that refuses');
cut(ask('/once', 'chat', {}, 'truncate=5', 'truncate=5'), 'tries', 'tries');
cut(ask('', 'chat', {}, ('truncate=2') x 4), 'tries', 'an engine that ends each stream');

# the client gets the engine's own error; an error of the client's is not a
# fault

my $own = $t->post($paths{chat}, body('chat', n => 2),
                   headers => { 'X-Fault' => 'error-in-stream=2', 'X-N' => ++$n });
like($own->{body}, qr/EngineCore encountered.*\n\ndata: \[DONE\]\n\n\z/, 'the engine\'s own error');

my $client = ask('', 'chat', {}, 'client-error-in-stream=3');
is("$client->{error} $client->{done} $client->{log}", '1 1 0 -', 'a client\'s error is passed on');

cut(ask('/tgi', 'chat', {}, @fault), 'engine', 'an engine that cannot continue');

my @long = (messages => [{ role => 'user', content => text(20000, 8) }]);

if ($t->has('prefill')) {
    is(ask('/legs', 'chat', { @long }, 'none')->{done}, 1, 'two servers: whole');
    cut(ask('/legs', 'chat', { @long }, @fault), 'prefill', 'two servers');
}

# --- APIs without continuation: an error event in their format, or a retry

my %other = (
    messages => [encode_json({ model => 'emulated', stream => $true, max_tokens => 20,
                               messages => [{ role => 'user', content => 'hello' }] }),
                 qr/event: message_stop\n.*\n\n\z/, qr/event: error\ndata: (\{"type":"error","error":\{.*\}\})\n\n\z/],
    responses => [encode_json({ model => 'emulated', stream => $true, max_output_tokens => 20, input => 'hello' }),
                  qr/event: response\.(completed|incomplete)\n.*\n\n\z/, qr/event: error\ndata: (\{"type":"error".*\})\n\n\z/],
);

for my $api (sort keys %other) {
    my ($json, $end, $error) = @{$other{$api}};

    my $get = sub {
        my ($where, %headers) = @_;
        return $t->post("$where/v1/$api", $json, headers => { 'X-N' => ++$n, %headers });
    };

    my $r = $get->('');
    like($r->{body}, $end, "$api: whole");
    is(logged($n), '0 -', "$api: nothing broke");
    unlike($r->{body}, qr/event: error/, "$api: no error");

    $r = $get->('/short');
    unlike($r->{body}, qr/event: error/, "$api: an event longer than max=");

    for my $fault (qw(truncate=5 reset-mid-stream=5 stall=5)) {
        $r = $get->('', 'X-Fault' => $fault);
        ok($r->{complete}, "$api: $fault");
        my ($e) = $r->{body} =~ $error;
        ok(eval { decode_json($e) }, "$api: ends with an error event");
        like(logged($n), qr/^0 api$/, "$api: why");
    }

    $r = $get->('', 'X-Fault' => 'reset-after-headers');
    like($r->{body}, $end, "$api: sent again");
    is(logged($n), '1 -', "$api: once");
}

# --- off: unchanged

my $off = $t->post("/off$paths{chat}", body('chat'), headers => { 'X-Fault' => 'truncate=5', 'X-N' => ++$n });
ok(!$off->{complete}, 'off: the answer is cut');
is(logged($n), '- -', 'off: no variables');

# --- retries have a budget

my @log = map { ask('/limited', 'chat', {}, ('truncate=1') x 4)->{log} } 1 .. 8;

ok((grep { /budget/ } @log), 'a budget for retries holds');

my $sent = 0;
$sent += $_ for map { /^(\d+)/ } @log;
cmp_ok($sent, '<', 32, 'an engine that ends each stream does not multiply requests');

# --- salt, and the queue

unbroken(ask('/salted', 'chat', { headers => { 'X-Salt' => 's' } }, @fault), 'chat', 1, 'salted');

my @s = map {
    $t->start("POST /queue$paths{chat}", body('chat'),
              headers => { 'X-N' => ++$n, 'X-Fault' => 'truncate=3' })
} 1 .. 8;
my $first = $n - 7;

for my $i (0 .. 7) {
    my $a = events($t->finish($s[$i]), $first + $i);
    unbroken($a, 'chat', 1, "queued $i");
}

my ($queue) = grep { $_ } map { $_->{queue} } $t->status()->{upstreams}{queue};
ok($t->idle(), 'the counters are back at zero');

# --- a killed engine, a client that left, a slow client

$t->kill_engine($t->{vars}{E2});
unbroken(ask('', 'chat', {}, 'truncate=5'), 'chat', 1, "with a dead engine $_") for 1 .. 4;

sub asked {
    my $sum = 0;
    $sum += $t->control($t->{vars}{$_})->{generate_requests} for qw(E0 E1);
    return $sum;
}

my $before = asked();
my $gone = $t->start("POST $paths{chat}", body('chat'),
                     headers => { 'X-N' => ++$n, 'X-Fault' => 'stall=3' });
$t->read_until($gone, qr/content":"\w/);
close $gone;
ok(wait_for(sub { $t->access_log() =~ /^$n /m }), 'a client has left');
is(asked() - $before, 1, 'its answer is not continued');

my $slow = $t->start("POST $paths{chat}",
                     body('chat', max_tokens => 5000, ignore_eos => $true),
                     headers => { 'X-N' => ++$n, 'X-Fault' => 'truncate=200' });
select undef, undef, undef, .5;
my $a = events($t->finish($slow), $n);
is("$a->{done} $a->{bad} $a->{error} $a->{usage}{completion_tokens} $a->{log}",
   '1 0 0 5000 1 -', 'a slow client gets all');

# --- drained with move=1: all movable streams leave, and none is cut

my %long = (max_tokens => 200, ignore_eos => $true);
my $whole = ask('/moved', 'chat', { %long });
my $e6 = "127.0.0.1:$t->{vars}{E6}";

my @moved = map {
    $t->start("POST /moved$paths{chat}", body('chat', %long, $_ ? () : (n => 2)),
              headers => { 'X-N' => ++$n })
} 0 .. 20;

$first = $n - 20;
$t->read_until($_, qr/content":"\w/) for @moved[0, 20];

like($t->post("/api/drain?peer=$e6&move=$_", '')->{body}, qr/argument/, "move=$_ is refused")
    for qw(2 1&rate=0 1&rate=x);
is($t->post("/api/drain?peer=$e6&move=1&rate=1000", '')->{status}, 200, 'drained, with its streams');

my $left = sub { $t->peer('moved', $t->{vars}{E6})->{active} };
ok(wait_for(sub { $left->() <= 1 }), 'its streams have left');

my @after = map { events($t->finish($moved[$_]), $first + $_) } 1 .. 19;
is(scalar(grep { $_->{text} ne $whole->{text} || $_->{error} || $_->{bad} || $_->{done} != 1 } @after),
   0, 'no stream was cut or differs');
ok((grep { $_->{log} eq '1 -' } @after), 'some were moved');
ok(!(grep { $_->{log} !~ /^[01] -$/ } @after), 'none was moved twice');

$t->finish($moved[0]);
is(logged($first), '0 -', 'an answer that cannot be continued stays to its end');

my ($state) = map { $_->{state} } $t->peer('moved', $t->{vars}{E6});
isnt($state, 'ejected', 'a move is not a failure of the server');
cmp_ok($t->status()->{upstreams}{moved}{continued}{moved}, '>', 0, 'counted as moved');
# if all servers are drained, no stream is moved to and fro

my @e = map { "127.0.0.1:$t->{vars}{$_}" } qw(E6 E7);

$t->post("/api/undrain?peer=$e6", '');
@moved = map { $t->start("POST /moved$paths{chat}", body('chat', %long), headers => { 'X-N' => ++$n }) } 1 .. 4;
$t->read_until($_, qr/content":"\w/) for @moved;
$t->post("/api/drain?peer=$_&move=1&rate=1000", '') for @e;

for my $i (0 .. 3) {
    my $a = events($t->finish($moved[$i]), $n - 3 + $i);
    is("$a->{done} $a->{error} " . ($a->{text} eq $whole->{text}), '1 0 1', "all drained, $i");
    like($a->{log}, qr/^[01] -$/, "all drained, $i: moved once at most");
}

$t->post("/api/undrain?peer=$_", '') for @e;

# --- counters

my $u = $t->status()->{upstreams}{llm};

cmp_ok($u->{continued}{broken}, '>', 20, 'counted as broken');
like($t->get('/kvroute/metrics')->{body},
     qr/^kvroute_cut_total\{upstream="llm",reason="reasoning"\} 1$/m, 'and by reason');

$t->done();
