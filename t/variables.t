#!/usr/bin/perl

# Variables in headers, to the engine and to the client: text of a body, a path
# or a client's header cannot become a header or a request.

use lib 't/lib';
use Kvroute;

my $t = Kvroute->new();

# a server that answers with the header of the request it received

for my $name (qw(E0 E1)) {
    $t->serve($name, sub {
        my ($c) = @_;
        my $data = '';

        while (defined(my $head = Kvroute::Servers::backend_read($c, \$data)))
        {
            Kvroute::Servers::backend_send($c, 200, $head);
        }
    });
}

my @names = qw(policy reason peer model session service_tier body_priority
               prompt_bytes matched_bytes best_bytes queue_time queue_status
               ttft prompt_tokens cached_tokens completion_tokens);

my $set = join "\n", map { "proxy_set_header X-Sent-$_ \$kvroute_$_;" } @names;
my $add = join "\n", map { "add_header X-Back-$_ \$kvroute_$_;" } @names;

$t->upstream('u', 'kvroute sticky key=auto zone=z;', 'E0 E1', 'keepalive 4;');
$t->upstream('named', 'kvroute sticky key=auto zone=z;', 'E0 E1');
$t->upstream('decoded', 'kvroute sticky key=$uri zone=z;', 'E0 E1');

$t->conf(<<"EOF");
    map \$kvroute_model \$pool {
        volatile;
        default u;
        ~m      named;
    }


    proxy_http_version 1.1;
    proxy_set_header Connection "";
    $set
    $add

    location / { proxy_pass http://u; }
    location /pool/ { proxy_pass http://\$pool; }
    location /decoded/ { proxy_pass http://decoded/; }
EOF

$t->run();

# a variable as the engine received it, and as the client received it

sub values_of {
    my ($r, $name) = @_;
    my ($sent) = $r->{body} =~ /^X-Sent-\Q$name\E: (.*?)\r?$/mi;

    return ($sent // '', $r->{headers}{lc "x-back-$name"} // '');
}

sub is_both {
    my ($r, $name, $value, $what) = @_;
    my ($sent, $back) = values_of($r, $name);

    is($sent, $value, "$what: $name, to the engine");
    is($back, $value, "$what: $name, to the client");
}

# the session is known only after the choice: the engine does not receive it

sub back {
    my ($r, $name) = @_;

    return (values_of($r, $name))[1];
}

# ordinary text is not changed

{
    my $r = $t->post('/', chat('hi', model => 'org/llama ~%"\\',
                               prompt_cache_key => 'key', priority => -3,
                               service_tier => 'flex'));

    is_both($r, 'model', 'org/llama ~%"\\', 'ordinary');
    is_both($r, 'service_tier', 'flex', 'ordinary');
    is_both($r, 'body_priority', '-3', 'ordinary');
    is(back($r, 'session'), 'key', 'ordinary: session');

    $r = $t->post('/', chat('hi', model => "\xd0\xbc\xe6\xa8\xa1"));
    is_both($r, 'model', "\xd0\xbc\xe6\xa8\xa1", 'UTF-8');
}

# no byte below 0x20, nor 0x7f

for my $i (0 .. 0x20, 0x7e, 0x7f) {
    my $text = 'm' . chr($i) . 'x';
    my $ok = $i >= 0x20 && $i != 0x7f;
    my $r = $t->post('/', chat('hi', model => $text, service_tier => $text,
                               prompt_cache_key => $text));

    is(join('|', back($r, 'session'),
            map { values_of($r, $_) } qw(model service_tier)),
       join('|', ($ok ? $text : '') x 5),
       sprintf('byte %02x: %s', $i, $ok ? 'as it is' : 'not found'));
}

# line ends, escaped and literal, with a header behind them

{
    my $bad = "m\r\nX-Injected: 1\r\n\r\nPOST /smuggled HTTP/1.1\r\n";
    my $raw = '{"model":"a' . "\n" . 'X-Injected: 1","messages":[{"role":"user",'
              . '"content":"x"}],"service_tier":"\u000d\u000aX-Injected: 1"}';

    for my $body (chat('hi', model => $bad, service_tier => $bad,
                       prompt_cache_key => $bad), $raw)
    {
        my $r = $t->post('/', $body);

        is($r->{status}, 200, 'line ends: served');
        unlike($r->{body}, qr/X-Injected/i, 'line ends: none to the engine');
        unlike($r->{head}, qr/X-Injected/i, 'line ends: none to the client');
        is_both($r, $_, '', 'line ends') for qw(model service_tier);
        is(back($r, 'session'), '', 'line ends: session');
    }

    # the model in a path, and a key that is the path

    my $r = $t->post('/v2/models/m%0d%0aX-Injected:%201/infer',
                     '{"text_input":"x"}');
    unlike($r->{body} . $r->{head}, qr/^X-Injected/mi, 'path: no header');
    is_both($r, 'model', '', 'path');

    $r = $t->post('/v2/models/llama/infer', '{"text_input":"x"}');
    is_both($r, 'model', 'llama', 'path without line ends');

    $r = $t->post('/decoded/a%0d%0aX-Injected:%201', chat('hi'));
    unlike($r->{head}, qr/^X-Injected/mi, 'decoded key: no header');
    is(back($r, 'session'), '', 'decoded key: not found');

    # a tab in a client's header

    $r = $t->post('/', chat('hi'), headers => { 'X-Session-Id' => "a\tb" });
    is(back($r, 'session'), '', 'tab: not found');
}

# such text does not match in a map

{
    my $named = sub {
        my $n = 0;
        $n += $t->peer('named', $t->{vars}{$_})->{requests} for qw(E0 E1);
        return $n;
    };

    is($t->post('/pool/', chat('hi', model => "m\n"))->{status}, 200,
       'map: served');
    is($named->(), 0, 'map: by its default');

    $t->post('/pool/', chat('hi', model => 'm'));
    is($named->(), 1, 'map: by the name');
}

# a key that is only hashed keeps its bytes: such sessions are distinguished

{
    my %seen;

    for my $key (map { "k\n$_" } 1 .. 4) {
        for (1 .. 3) {
            my $r = $t->post('/', chat('hi', prompt_cache_key => $key));
            $seen{$key}{back($r, 'peer')}++;
        }
    }

    is(scalar(grep { keys %$_ == 1 } values %seen), 4,
       'sessions with such keys stay where they are');
    is(scalar(keys %{{ map { %$_ } values %seen }}), 2,
       'such keys name several sessions');
}

$t->done();
