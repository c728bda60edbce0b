#!/usr/bin/perl

# kvroute_first_token: if the first event is late, a second server gets the
# request too.  The client gets one of the two answers, like an ordinary one.

use JSON::PP;

use lib 't/lib';
use Kvroute;

my $t = Kvroute->new();

my @engine = ('--hardware', 'none', '--inter-token-latency', '1ms', '--continue',
              '--request-log', 500);

$t->engines(1, @engine) for 0 .. 3;

# X-Fault is for the first server, X-Fault1 for the second one

$t->upstream('llm', 'kvroute_eject off;', map { "E$_ max_fails=0" } 0 .. 3);
$t->upstream('one', 'E0 max_fails=0');
$t->upstream('few', 'kvroute_eject off;', map { "E$_ max_fails=0" } 0 .. 3);

$t->{vars}{H2} = $t->port();

$t->conf(<<'EOC')->run();
    log_format kv '$http_x_n $status $kvroute_late $kvroute_continued $upstream_addr $kvroute_peer';
    access_log %%DIR%%/access.log kv;

    kvroute_zone zone=z:4m;

    map $kvroute_late $fault {
        volatile;
        default none;
        "" $http_x_fault;
        twice $http_x_fault1;
    }

    proxy_http_version 1.1;
    proxy_set_header Connection "";
    proxy_set_header X-Engine-Fault $fault;
    proxy_buffering off;
    proxy_read_timeout 3s;
    proxy_next_upstream off;
    kvroute_first_token 50ms 100%;
    add_header X-Peer $kvroute_peer always;
    add_header X-Upstream $upstream_http_x_engine_replica;

    gzip_types text/event-stream;
    gzip_min_length 1;

    location / { proxy_pass http://llm/; }
    location /buffered/ { proxy_buffering on; proxy_pass http://llm/; }
    location /file/ { client_body_buffer_size 1k; proxy_pass http://llm/; }
    location /off/ { kvroute_first_token off; proxy_pass http://llm/; }
    location /continue/ { kvroute_continue on; proxy_pass http://llm/; }
    location /short/ { proxy_read_timeout 200ms; proxy_pass http://llm/; }
    location /page/ { proxy_read_timeout 200ms; error_page 502 504 = @page; proxy_pass http://llm/; }
    location @page { return 200 "the page"; }
    location /both/ { proxy_read_timeout 200ms; kvroute_continue 2; proxy_pass http://llm/; }
    location /one/ { proxy_read_timeout 200ms; proxy_pass http://one/; }
    location /few/ { proxy_read_timeout 200ms; kvroute_first_token 50ms 1%; proxy_pass http://few/; }
    location /auto/ { kvroute_first_token auto 100%; proxy_pass http://llm/; }
    location /plain/ { proxy_pass http://127.0.0.1:%%E0%%/; }

    server { listen 127.0.0.1:%%H2%% http2; location / { gzip on; proxy_pass http://llm; } }
EOC

my $true = JSON::PP::true;
my $n = 0;

sub body {
    my (%arg) = @_;

    return encode_json({ model => 'emulated', stream => $true, max_tokens => 20,
        stream_options => { include_usage => $true },
        messages => [{ role => 'user', content => 'hello' }], %arg });
}

sub logged {
    my ($n) = @_;
    my $line;

    wait_for(sub { ($line) = $t->access_log() =~ /^$n (.*)$/m });
    return $line;
}

sub ask {
    my ($where, $arg, @faults) = @_;

    my %headers = ('X-N' => ++$n);
    $headers{'X-Fault' . ($_ || '')} = $faults[$_] for 0 .. $#faults;
    my $chunked = delete $arg->{chunked};

    my $r = $t->post("$where/v1/chat/completions", body(%$arg), chunked => $chunked,
                     headers => \%headers);

    return answer($r);
}

sub answer {
    my ($r) = @_;

    my %a = (complete => $r->{complete}, status => $r->{status}, body => $r->{body},
             done => scalar(() = $r->{body} =~ /^data: \[DONE\]$/mg),
             text => join('', $r->{body} =~ /"content":"([^"]*)"/g),
             type => $r->{headers}{'content-type'}, log => logged($n));

    @a{qw(code late continued addr peer)} = split / /, $a{log};
    $a{own} = ($r->{headers}{'x-peer'} // '') eq $a{peer} && $a{addr} eq $a{peer};

    return \%a;
}

sub asked {
    my $sum = 0;
    $sum += $t->control($t->{vars}{$_})->{generate_requests} for map { "E$_" } 0 .. 3;
    return $sum;
}

my $whole = ask('', {});

is("$whole->{status} $whole->{done} $whole->{late}", '200 1 -', 'in time');
is(length $whole->{text}, 80, 'its text');

sub same {
    my ($a, $late, $name) = @_;

    is_deeply([@$a{qw(status complete done text type)}],
              [@$whole{qw(status complete done text type)}], "$name: the answer");
    is($a->{late}, $late, "$name: $late");
    ok($a->{own}, "$name: its headers");
}

# --- one of two stalls, whatever the first one has sent

for my $where ('', '/buffered', '/continue') {
    same(ask($where, {}, $_), 'second', "$where $_") for qw(hang stall=0);
}

same(ask('/file', { messages => [{ role => 'user', content => 'hello' }], pad => 'x' x 20000 }, 'hang'),
     'second', 'a body in a file');
same(ask('', { chunked => 50 }, 'hang'), 'second', 'a body in chunks');

# --- the events of Responses before the first token are of the same answer

my $two = $t->post('/v1/responses', encode_json({ model => 'emulated', stream => $true, input => 'hello',
                                                  max_output_tokens => 20 }),
                   headers => { 'X-N' => ++$n, 'X-Fault' => 'stall=0' });
is(answer($two)->{late}, 'second', 'Responses');
is_deeply([$two->{body} =~ /"sequence_number":(\d+)/g],
          [0 .. (() = $two->{body} =~ /^event: /mg) - 1], 'each event is sent once');

# --- the first one answers after all, whatever the second one does

for my $fault (qw(hang stall=0 status=500 status=429 reset-before-headers reset-after-headers
                  garbage truncate=0))
{
    my $r = $t->post('/v1/chat/completions', body(),
                     headers => { 'X-N' => ++$n, 'X-Fault' => 'stall=0', 'X-Fault1' => $fault,
                                  'X-Engine-Stall-Ms' => $fault eq 'stall=0' ? 100 : 300 });
    my $a = answer($r);
    is("$a->{status} $a->{done} $a->{text}", "200 1 $whole->{text}", "the second: $fault");
}

# --- the first one fails while the second one is running

for my $where ('', '/page') {
    for my $fault (qw(status=500 status=503 reset-before-headers reset-after-headers garbage truncate=0)) {
        my $r = $t->post("$where/v1/chat/completions", body(),
                         headers => { 'X-N' => ++$n, 'X-Fault' => $fault, 'X-Engine-Delay-Ms' => 100 });
        same(answer($r), 'second', "$where first: $fault");
    }
}

my $r = $t->post('/v1/chat/completions', body(),
                 headers => { 'X-N' => ++$n, 'X-Fault' => 'status=400', 'X-Engine-Delay-Ms' => 100 });
is(answer($r)->{code}, 400, 'a client error is an answer');

# --- neither answers

for my $fault (qw(hang stall=0)) {
    my $a = ask('/short', {}, $fault, $fault);
    is("$a->{status} $a->{complete}", '504 1', "both $fault");

    $a = ask('/page', {}, $fault);
    is("$a->{status} $a->{late}", '200 second', "page, $fault");

    $a = ask('/both', {}, $fault, $fault);
    is("$a->{status} $a->{late}", '504 second', "both $fault, with kvroute_continue");
}

$r = $t->post('/v1/chat/completions', body(),
              headers => { 'X-N' => ++$n, 'X-Fault' => 'reset-after-headers',
                           'X-Fault1' => 'reset-after-headers', 'X-Engine-Delay-Ms' => 100 });
is(answer($r)->{code}, 502, 'both break');

# --- requests that are not sent twice

my $a = ask('/one', {}, 'stall=0');
is("$a->{status} $a->{late}", '504 busy', 'there is no other server');

$a = ask('/few', {}, 'stall=0');
is("$a->{status} $a->{late}", '504 hedge', 'above the allowed share');

$a = ask('/off', {}, 'truncate=0');
is($a->{late}, '-', 'off');

$r = $t->post('/v1/chat/completions', body(stream => JSON::PP::false),
              headers => { 'X-N' => ++$n, 'X-Engine-Delay-Ms' => 150 });
is(answer($r)->{late}, '-', 'not a stream');

$r = $t->post('/plain/v1/chat/completions', body(), headers => { 'X-N' => ++$n });
is(answer($r)->{text}, $whole->{text}, 'a server of another balancer');

# --- the second one's answer breaks

$a = ask('/continue', {}, 'hang', 'truncate=5');
is("$a->{status} $a->{done} $a->{text} $a->{late} $a->{continued}", "200 1 $whole->{text} second 1",
   'the answer is continued');

$a = ask('', {}, 'hang', 'truncate=5');
is("$a->{status} $a->{complete} $a->{late}", '200 0 second',
   'without kvroute_continue the answer is cut');

# --- a client of HTTP/2, and one that takes gzip

for my $how ('', '--compressed') {
    my $json = body();
    my $out = `curl -s --http2-prior-knowledge $how -H 'X-Fault: stall=0' -H 'X-N: @{[++$n]}' \\
        -H 'Content-Type: application/json' -d '$json' http://127.0.0.1:$t->{vars}{H2}/v1/chat/completions`;

    next if !$out && $t->{version} !~ /http_v2_module/;

    $a = answer({ body => $out, status => 200, complete => 1, headers => {} });
    is("$a->{done} $a->{text} $a->{late}", "1 $whole->{text} second", "HTTP/2 $how");
}

# --- the client has left: both requests end

my @gone = map { $t->start('POST /v1/chat/completions', body(),
                           headers => { 'X-N' => ++$n, 'X-Fault' => 'hang', 'X-Fault1' => $_ }) }
               qw(hang stall=0);
ok(wait_for(sub { $t->load('llm') >= 4 }), 'two requests, each sent twice');
close $_ for @gone;
ok(wait_for(sub { $t->access_log() =~ /^$n /m }), 'a client has left');
ok($t->idle(), 'the counters are back at zero');

# --- auto: the limit is learned

for my $i (0 .. 3) {
    ok(wait_for(sub {
        ask('/auto', { max_tokens => 1, messages => [{ role => 'user', content => text(20000, $n) }] });
        $t->peer('llm', $t->{vars}{"E$i"})->{load}{prefill_rate};
    }), 'a rate of prefill');
}

for my $fault (qw(hang stall=0)) {
    $a = ask('/auto', {}, $fault);
    is("$a->{status} $a->{done} $a->{late}", '200 1 second', "auto, $fault");
}

# --- counters

my $u = $t->status()->{upstreams}{llm}{late};

cmp_ok($u->{second}, '>', 10, 'counted');
cmp_ok($u->{first} + $u->{second}, '<=', $u->{twice}, 'at most the sent ones');
like($t->get('/kvroute/metrics')->{body}, qr/^kvroute_late_total\{upstream="few",result="hedge"\} 1$/m,
     'in the metrics');

$t->done();
