#!/usr/bin/perl

# Requests that two servers serve, when one of these, nginx or the client fails:
# each row of the table in docs/prefill-decode.md.
#
# With KVROUTE_ROWS=FILE the rows are written there, as JSON (make bench-pd).

use IO::Socket::INET;
use JSON::PP;
use Socket qw(SOL_SOCKET SO_LINGER);
use Time::HiRes ();

use lib 't/lib';
use Kvroute;

my $t = Kvroute->new();

# Servers that record their requests, and act as the header X-P0, X-P, X-D0 or
# X-D says; a prefill server gives each request its own descriptor.

sub server {
    my ($name) = @_;

    my $dir = $t->{dir};
    my $kind = substr($name, 0, 1);

    $t->serve($name, sub {
        my ($c) = @_;
        my ($n, $data) = (0, '');

        while (my ($head, $body) = Kvroute::Servers::backend_read($c, \$data)) {
            my ($do) = $head =~ /^X-(?:$name|$kind): (.*?)\r?$/mi;
            my $id = sprintf '%s-%d-%d', $name, $$, $n++;

            keep("$dir/$kind.sent", encode_json({
                name => $name, head => $head, body => $body, id => $id,
                reused => $n > 1 ? 1 : 0 }));

            last unless act($c, $do // '', $kind, $id, $n, $dir);
        }
    });
}

sub keep {
    my ($file, $line) = @_;
    open my $fh, '>>', $file or return;
    syswrite($fh, "$line\n");
}

sub reset_it {
    my ($c) = @_;
    $c->setsockopt(SOL_SOCKET, SO_LINGER, pack('ii', 1, 0));
    close $c;
    return 0;
}

# returns whether the connection continues

sub act {
    my ($c, $do, $kind, $id, $n, $dir) = @_;

    my $params = "\"kv_transfer_params\":{\"remote_request_id\":\"$id\"}";
    my $text = $kind eq 'P' ? "{\"id\":\"1\",$params}" : '{"id":"2"}';
    my $status = 200;
    my $more = '';

    # waits for the test's signal

    if ($do =~ s/^wait (\w+) ?//) {
        my $file = "$dir/$1";
        keep("$dir/$kind.waits", $id);

        while (!-e $file) {
            my $in = '';
            vec($in, fileno($c), 1) = 1;
            next unless select($in, undef, undef, .01);
            return keep("$dir/$kind.gone", $id) && 0 if !sysread($c, $in, 1);
        }
    }

    return reset_it($c) if $do eq 'reset' || ($do eq 'stale' && $n > 1);
    return 0 if $do eq 'close';

    if ($do eq 'hang') {
        sysread($c, my $in, 1);
        return 0;
    }

    if ($do =~ /^status (\d+)/) {
        ($status, $text) = ($1, "{\"error\":\"status $1\"}");

    } elsif ($do eq 'gzip') {
        $more = "Content-Encoding: gzip\r\n";

    } elsif ($do eq 'garbage') {
        syswrite($c, "what?\r\n\r\n");
        return 0;

    } elsif ($do eq 'text') {
        $text = 'no JSON';

    } elsif ($do eq 'none') {
        $text = '{"id":"1"}';

    } elsif ($do eq 'null') {
        $text = '{"kv_transfer_params":null}';

    } elsif ($do eq 'list') {
        $text = '{"kv_transfer_params":[1]}';

    } elsif ($do eq 'broken') {
        $text = '{"kv_transfer_params":{"x":[}}}';

    } elsif ($do eq 'giant') {
        $text = '{"kv_transfer_params":{"x":"' . 'x' x 1_100_000 . '"}}';

    } elsif ($do eq 'more') {
        $text .= '{"another":"one"}';

    } elsif ($do =~ /^drip ?(\w*)/) {

        # a byte at a time, then something that does not belong to it

        my %after = (another => '{"another":"one"}', space => " \r\n\t");

        syswrite($c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        syswrite($c, "1\r\n$_\r\n")
            for split //, $text . ($after{$1} // "\0what");
        syswrite($c, "0\r\n\r\n");
        return 1;

    } elsif ($do =~ /^stream ?(\w*)/) {
        syswrite($c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                     . "Connection: close\r\n\r\ndata: {\"choices\":[{\"delta\":"
                     . "{\"content\":\"a\"}}]}\n\n");
        return act($c, $1, $kind, $id, $n, $dir) if $1;
        syswrite($c, "data: [DONE]\n\n");
        return 0;

    } elsif ($do eq 'chunk') {

        # in one piece: nginx reads the head and the error at once

        syswrite($c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                     . "what?\r\n");
        return 0;

    } elsif ($do =~ /^part (\w+)/) {
        syswrite($c, "HTTP/1.1 200 OK\r\nContent-Length: " . length($text)
                     . "\r\n\r\n" . substr($text, 0, 1, ''));
        select(undef, undef, undef, .01) while !-e "$dir/$1";
        syswrite($c, $text);
        return 1;

    } elsif ($do eq 'endless') {
        syswrite($c, "HTTP/1.1 200 OK\r\n\r\n{");
        select(undef, undef, undef, .01) while syswrite($c, ' ');
        return 0;

    } elsif ($do eq 'event') {
        syswrite($c, "data: {\"error\":{\"code\":500,\"message\":\"KV load "
                     . "failed\"}}\n\n");
        return 0;
    }

    my $len = length $text;

    syswrite($c, "HTTP/1.1 $status X\r\nContent-Type: application/json\r\n$more"
                 . "Content-Length: $len\r\n\r\n"
                 . ($do eq 'cut' ? substr($text, 0, $len - 1) : $text));
    keep("$dir/$kind.answered", $id);

    return $do ne 'cut';
}

server($_) for qw(P0 P1 D0 D1);

# a port that refuses, and one that does not answer

$t->{vars}{DEAD} = $t->port();

my $full = IO::Socket::INET->new(Listen => 1, LocalAddr => '127.0.0.1');
$t->{vars}{FULL} = $full->sockport();

my @waiting;

for (1 .. 4) {
    my $s = IO::Socket::INET->new(PeerAddr => '127.0.0.1', Blocking => 0,
                                  PeerPort => $full->sockport());
    push @waiting, $s if $s;
}

$t->upstreams(
    prefill => [qw(P0 P1), 'keepalive 4;'],
    one => ['P0', 'keepalive 4;'],
    unreachable => ['DEAD'],
    nobody => ['P0 down'],
    decode => [qw(D0 D1), 'keepalive 4;'],
    refused => [qw(DEAD D1)],
    slow => [qw(FULL D1)],
    narrow => ['kvroute_queue max=4 timeout=1h;', 'D0 max_conns=%%MAX%%'],
);

$t->{vars}{MAX} = 1;

sub configure {
    my $conf = <<'EOF';
    log_format kv '$http_x_n $status $kvroute_disaggregated $kvroute_leg1_status '
                  '$kvroute_leg1_time';
    access_log %%DIR%%/access.log kv;

    kvroute_zone zone=z:4m;

    kvroute_prefill prefill min=1k!;
    proxy_http_version 1.1;
    proxy_set_header Connection "";
    proxy_buffering off;

    location / { proxy_pass http://decode; }
    location /again/ {
        proxy_next_upstream error timeout http_500 non_idempotent;
        proxy_pass http://decode/;
    }
    location /quick/ {
        kvroute_prefill prefill min=1k! timeout=100ms;
        proxy_pass http://decode/;
    }
    location /strict/ {
        kvroute_prefill prefill min=1k! fallback=none;
        proxy_pass http://decode/;
    }
    location /lease/ {
        kvroute_prefill prefill min=1k!;
        proxy_pass http://decode/;
    }
    location /one/ {
        kvroute_prefill one min=1k!;
        kvroute_pin 127.0.0.1:%%D0%%;
        proxy_next_upstream error timeout http_500 non_idempotent;
        proxy_pass http://decode/;
    }
    location /unreachable/ {
        kvroute_prefill unreachable min=1k!;
        proxy_pass http://decode/;
    }
    location /nobody/ {
        kvroute_prefill nobody min=1k!;
        proxy_pass http://decode/;
    }
    location /refused/ {
        kvroute_pin 127.0.0.1:%%DEAD%%;
        proxy_pass http://refused/;
    }
    location /late/ {
        kvroute_prefill prefill min=1k!;
        kvroute_pin 127.0.0.1:%%FULL%%;
        proxy_connect_timeout 1h;
        proxy_pass http://slow/;
    }
    location /narrow/ { proxy_pass http://narrow/; }
EOF
    $t->conf($conf);
}

configure();
$t->run();

my $path = '/v1/chat/completions';
my ($seed, @rows, %used) = (1);

sub sent {
    my @lines = map { decode_json($_) } $t->new_lines("$_[0].sent");

    # each descriptor is used by one request only

    for (@lines) {
        $used{$1}++ if $_->{body} =~ /"remote_request_id":"([^"]*)"/;
    }

    return @lines;
}

# the access log's fields of the last request: status, outcome, leg 1's status

my $asked = 0;

sub logged { return $t->logged($asked) =~ s/^\S+ \S+ \S+\K.*//r }

# new lines of the error log that an operator sees

sub errors {
    return grep { /\[(?:warn|error|crit|alert|emerg)\]/
                  && !/is buffered to a temporary file/ }
           $t->new_lines('error.log');
}

# there is at least one line, and all match; undef: there is none

sub errors_are {
    my ($name, $re) = @_;
    my @lines = errors();

    return is(join("\n", @lines), '', "$name: the error log") unless $re;

    ok(@lines && !(grep { !/$re/ } @lines), "$name: the error log")
        or diag(join "\n", @lines);
}

sub body { return '{"stream":true,"prompt":"' . text(2000, $seed++) . '"}' }

sub plain { return $_[0]{body} !~ /remote_request_id/ }

# A row: name, location, commands for the servers; then the log's fields: status,
# outcome, leg 1's status; the number of prefill requests; the requests to decode
# servers: d with a descriptor, p the client's own; undef: any.  log: a pattern
# for the error log, which otherwise must be empty.

sub row {
    my ($name, $where, $do, $expected, $n, $legs, %arg) = @_;

    $legs = $legs eq 'dp' ? qr/^dp+$/ : qr/^$legs$/;

    sent($_) for qw(P D);

    errors();

    my $body = body();
    my $r = $t->post("$where$path", $body, socket => $arg{socket},
                     headers => { %$do, 'X-N' => ++$asked });
    my $line = logged();
    my (@p, %p);

    # a closed request may not have been read

    wait_for(sub {
        push @p, sent('P');
        $p{$_->{name}} = 1 for @p;
        return keys %p >= ($n // 0);
    });

    my @d = sent('D');

    ref $expected ? like($line, $expected, $name) : is($line, $expected, $name);
    errors_are($name, $arg{log});
    is(scalar(keys %p), $n, "$name: prefill servers") if defined $n;

    # a request on a closed kept connection can be sent again

    like(join('', map { plain($_) ? 'p' : 'd' } @d), $legs, "$name: leg 2");

    for (grep { plain($_) } @d) {
        (my $same = $_->{body}) =~ s/ +\}$/}/;
        is($same, $body, "$name: the client's own request");
    }

    told($name, $line);

    return ($r, \@p, \@d);
}

sub told {
    my ($name, $line) = @_;
    my ($status, $outcome, $leg1) = split / /, $line;

    push @rows, { row => $name, status => 0 + $status, outcome => $outcome,
                  leg1_status => $leg1 };
}


# leg 1

row('all is well', '', {}, '200 yes 200', 1, 'd');
row("leg 1: $_", '', { 'X-P' => "status $_" }, "200 failed $_", 1, 'p')
    for 400, 404, 413, 422;
row("leg 1: $_", '', { 'X-P' => "status $_" }, "200 failed $_", 2, 'p')
    for 429, 500, 502, 503, 504;
row('leg 1: a redirect', '', { 'X-P' => 'status 302' }, '200 failed 302', 1,
    'p');
row('leg 1: reset', '', { 'X-P' => 'reset' }, '200 failed 502', 2, 'p',
    log => qr/reset by peer.*subrequest/);
row('leg 1: closed', '', { 'X-P' => 'close' }, '200 failed 502', 2, 'p',
    log => qr/prematurely closed.*subrequest/);
row('leg 1: no HTTP', '', { 'X-P' => 'garbage' }, '200 failed -', undef, 'p',
    log => qr/sent no valid HTTP.*subrequest/);
row('leg 1: connection refused', '/unreachable', {}, '200 failed 502', 0, 'p',
    log => qr/connect\(\) failed.*subrequest/);
row('leg 1: all are down', '/nobody', {}, '200 nobody -', 0, 'p');
row('leg 1: timeout', '/quick', { 'X-P' => 'hang' }, '200 failed 504', 1, 'p',
    log => qr/timed out.*subrequest/);

# nginx's own limit applies first if the server pauses that long

row('leg 1: an answer without end', '/quick', { 'X-P' => 'endless' },
    qr/^200 failed (?:504|200)$/, 1, 'p',
    log => qr/timed out.*subrequest/);

row('leg 1: cut answer', '', { 'X-P' => 'cut' }, '200 failed 200', 1, 'p',
    log => qr/prematurely closed.*subrequest/);
row('leg 1: wrong chunks', '', { 'X-P' => 'chunk' }, '200 failed 200', 1, 'p',
    log => qr/sent invalid chunked response.*subrequest/);
row('leg 1: compressed', '', { 'X-P' => 'gzip' }, '200 failed 200', 1, 'p');
row('leg 1: not JSON', '', { 'X-P' => 'text' }, '200 failed 200', 1, 'p');
row('leg 1: two answers', '', { 'X-P' => 'more' }, '200 failed 200', 1, 'p');
row("leg 1: byte by byte, and then $_->[0]", '', { 'X-P' => "drip $_->[1]" },
    @$_[2 .. 4])
    for [ 'spaces', 'space', '200 yes 200', 1, 'd' ],
        [ 'an answer', 'another', '200 failed 200', 1, 'p' ],
        [ 'no JSON', 'rest', '200 failed 200', 1, 'p' ];
row('leg 1: a stream', '', { 'X-P' => 'stream' }, '200 failed 200', 1, 'p');

# one of two fails, whichever comes first

row('leg 1: one of two fails', '', { "X-$_" => 'status 503' }, '200 yes 200',
    undef, 'd')
    for qw(P0 P1);

row("leg 1: descriptor is $_", '', { 'X-P' => $_ }, '200 answer 200', 1, 'p',
    log => qr/\[warn\].*: \S+ answered without "kv_transfer_params"/)
    for qw(none null list broken);
row('leg 1: descriptor is giant', '', { 'X-P' => 'giant' }, '200 answer 200', 1,
    'p', log => qr/\[warn\].*: \S+ answered .* than 1048576 bytes, and is not used/);

row('leg 1: fallback=none', '/strict', { 'X-P' => 'status 503' },
    '503 failed 503', 2, '');
row('leg 1: fallback=none, of a 429', '/strict', { 'X-P' => 'status 429' },
    '503 failed 429', 2, '');
row('leg 1: fallback=none, of a 400', '/strict', { 'X-P' => 'status 400' },
    '200 failed 400', 1, 'p');


# leg 2

row('leg 2: refused', '/refused', {}, '200 yes 200', 1, 'd',
    log => qr/connect\(\) failed/);
row('leg 2: expired', '/late', {}, '200 expired 200', 1, 'p',
    log => qr/upstream timed out.*while connecting/);
row('leg 2: reset', '', { 'X-D' => 'reset' }, '502 yes 200', 1, 'd',
    log => qr/reset by peer/);
row('leg 2: reset, retried', '/again', { 'X-D' => 'reset' }, '502 retried 200',
    1, 'dp', log => qr/reset by peer/);
row('leg 2: 500 of a lost transfer', '', { 'X-D' => 'status 500' },
    '500 yes 200', 1, 'd');
row('leg 2: 500 of a lost transfer, retried', '/again',
    { 'X-D' => 'status 500' }, '500 retried 200', 1, 'dp');

my ($r, $p, $d) = row('leg 2: an event of a lost transfer', '',
                      { 'X-D' => 'stream event' }, '200 yes 200', 1, 'd');
like($r->{body}, qr/"error".*KV load failed/, 'goes to the client');

($r) = row('leg 2: reset after the first token', '/again',
           { 'X-D' => 'stream reset' }, '200 yes 200', 1, 'd',
           log => qr/reset by peer/);
is($r->{complete}, 0, 'the answer breaks off');

row('leg 2: 4xx', '/again', { 'X-D' => 'status 400' }, '400 yes 200', 1, 'd');


# kept connections that are closed when they are reused: a worker's, so the client
# keeps its connection

my $c = $t->connect();

row('kept connections', '/one', {}, '200 yes 200', 1, 'd', socket => $c) for 1 .. 3;
($r, $p, $d) = row('leg 1: a kept connection ends', '/one',
                   { 'X-P' => 'stale' }, '200 yes 200', 1, 'd', socket => $c,
                   log => qr/reset by peer.*subrequest/);
like(join('', map { $_->{reused} } @$p), qr/^1+0$/, 'on another one');
($r, $p, $d) = row('leg 2: a kept connection ends', '/one',
                   { 'X-D' => 'stale' }, '200 retried 200', 1, 'dp',
                   socket => $c, log => qr/reset by peer/);
close $c;


# in the middle of either leg, by the name of the waiting server

my ($step, @killed) = (0);

sub waits {
    my ($kind) = @_;
    ok(wait_for(sub { -s "$t->{dir}/$kind.waits" }), "leg $kind is running");
    unlink "$t->{dir}/$kind.waits";
}

sub idle { ok($t->idle(), 'the counters are back at zero') }

sub begin {
    my ($kind, %arg) = @_;

    sent($_) for qw(P D);
    unlink map { "$t->{dir}/$kind.$_" } qw(gone waits answered);

    my $s = $t->start('POST ' . ($arg{where} // '') . $path, body(),
                      headers => { "X-$kind" => 'wait go' . ++$step,
                                   'X-N' => ++$asked });
    waits($kind);

    return $s;
}

for my $kind (qw(P D)) {
    my ($leg, $status) = $kind eq 'P' ? ('leg 1', '-') : ('leg 2', 200);

    # the client leaves

    my $s = begin($kind);
    close $s;

    ok(wait_for(sub { -s "$t->{dir}/$kind.gone" }), "$leg: so does nginx");
    my $line = logged();
    is($line, "499 yes $status", "$leg: the client leaves");
    errors_are("$leg: the client leaves");
    is(scalar(my @d = sent('D')), $kind eq 'P' ? 0 : 1, "$leg: no further request");
    told("$leg: the client leaves", $line);
    idle();

    # a reload: the request continues in the old worker

    $s = begin($kind);
    $t->reload();
    $t->step("go$step");
    $r = $t->finish($s);
    close $s;
    is($r->{status}, 200, "$leg: a reload");
    ok(!plain((sent('D'))[0]), "$leg: the descriptor is used");
    is(logged(), '200 yes 200', "$leg: the usual outcome");
    errors_are("$leg: a reload");
    told("$leg: a reload", '200 yes 200');
    idle();

    # the worker is killed

    $s = begin($kind);
    $t->kill_worker($_) for $t->active_workers();
    is($t->finish($s)->{status}, 0, "$leg: the worker is killed");
    ok(wait_for(sub { -s "$t->{dir}/$kind.gone" }), "$leg: its connections are closed");
    told("$leg: the worker is killed", '0 - -');
    errors_are("$leg: the worker is killed", qr/exited on signal 9/);
    push @killed, $asked;
    $t->step("go$step");
    idle();
    row("$leg: the next request", '', {}, '200 yes 200', 1, 'd');
}

# between the legs: leg 1's answer and the client's close arrive at once

my $s = begin('P');
my @workers = $t->active_workers();
kill 'STOP', @workers;
$t->step("go$step");
wait_for(sub { -s "$t->{dir}/P.answered" });
close $s;
kill 'CONT', @workers;
my $line = logged();
like($line, qr/^499 yes (?:-|200)$/, 'between the legs: the client leaves');
errors_are('between the legs: the client leaves');
idle();
told('between the legs: the client leaves', $line);


# Half of the lease is over when leg 1's answer ends.  The lease starts when that
# answer begins.

sub begun {
    my $n = 0;
    $n += $t->peer('prefill', $t->{vars}{$_})->{ttft_count} for qw(P0 P1);
    return $n;
}

my $before = begun();
$s = $t->start("POST /lease$path", body(),
               headers => { 'X-P' => 'part rest', 'X-N' => ++$asked });
ok(wait_for(sub { begun() > $before }), 'leg 1: the answer begins');
select(undef, undef, undef, 15.1);
$t->step('rest');
is($t->finish($s)->{status}, 200, 'leg 1: the lease is half over');
close $s;
is($line = logged(), '200 expired 200', 'leg 2: the descriptor is not used');
told('leg 1: the lease is half over when it ends', $line);
idle();


# A place at the decode server is reserved while leg 1 runs, even if requests
# come after a reload that allows more.

$s = begin('P', where => '/narrow');
$t->{vars}{MAX} = 3;
configure();
$t->reload();

my @others = map { $t->start("POST /narrow$path", body(),
                             headers => { 'X-D' => 'wait end' }) } 1, 2;
ok(wait_for(sub { ($t->peer('narrow', $t->{vars}{D0})->{active} // 0) == 3 }),
   'others are at the server');
$t->step("go$step");
is($t->finish($s)->{status}, 200, 'a reserved place is kept');
like($line = logged(), qr/^200 yes 200$/, 'and the descriptor is used');
told('leg 1: the decode server is full meanwhile', $line);
$t->step('end');
$t->finish($_) for @others;
close $_ for $s, @others;
idle();


# The log agrees with the counters, and has each end of leg 1.  A killed worker
# does neither.

my (%logged, %counted);

wait_for(sub {
    %logged = (ended => 0);

    for my $line (split /\n/, $t->access_log()) {
        my (undef, undef, $outcome, undef, $time) = split / /, $line;

        $logged{$outcome}++;
        $logged{ended}++ if $time ne '-';
    }

    %counted = ();

    for my $u (values %{$t->status()->{upstreams}}) {
        $counted{$_} += $u->{disaggregated}{$_} for keys %{$u->{disaggregated}};
        $counted{ended} += $u->{leg1_time}{count} if $u->{leg1_time};
    }

    return $counted{yes} == $logged{yes};
});

is_deeply(\%counted, \%logged, 'the status agrees with the log');
is(scalar(grep { $t->access_log() =~ /^$_ /m } @killed), 0,
   'a killed worker logs nothing');


sent('D');
is(scalar(grep { $_ > 1 } values %used), 0, 'no descriptor was used twice');
cmp_ok(scalar(keys %used), '>', 20, 'descriptors were used');

if ($ENV{KVROUTE_ROWS}) {
    Kvroute::write_file($ENV{KVROUTE_ROWS},
                        JSON::PP->new->canonical->pretty->encode(\@rows));
}

$t->done();
