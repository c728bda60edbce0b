#!/usr/bin/perl

# An engine that hangs while one request waits there: it is not ejected, but the
# health is amber since that request began, until any answer or another result of
# health checks. An answer in one piece may take as long.

use lib 't/lib';
use Kvroute;

my $t = Kvroute->new();

$t->engines(4, '--hardware', 'none', '--model', 'm');

my ($stream, $whole, $left, $cut) =
    map { "127.0.0.1:$t->{vars}{\"E$_\"}" } 0 .. 3;

$t->upstream('llm', 'kvroute_health uri=/health interval=50ms fails=2 timeout=1h;',
             'E0 E1 E2 E3 max_fails=0');

$t->conf(<<'EOC')->run();
    location / { kvroute_pin $http_x_pin; proxy_read_timeout 1h;
                 proxy_pass http://llm; }
    location /short/ { kvroute_pin $http_x_pin; proxy_read_timeout 5s;
                       proxy_next_upstream off; proxy_pass http://llm/; }
    location /next/ { kvroute_pin $http_x_pin; proxy_pass http://llm/;
                      proxy_next_upstream http_429 non_idempotent; }
EOC

my $path = '/v1/chat/completions';

sub send_to {
    my ($peer, $uri, %arg) = @_;

    return $t->start("POST $uri", chat(text(4000, 1), %arg),
                     headers => { 'X-Pin' => $peer });
}

sub served {
    my ($peer) = @_;

    is($t->finish(send_to($peer, $path, stream => \1))->{status}, 200, 'served');
}

sub silent {
    return map { $_->{servers}[0]{name} => $_ }
           grep { $_->{code} eq 'silent' }
           @{$t->status()->{upstreams}{llm}{health}{why}};
}

served($_) for ($stream, $whole, $left, $cut) x 2;

$t->control($t->{vars}{"E$_"}, { fault => 'hang' }) for 0 .. 3;

my $begin = time();

my @wait = (send_to($stream, $path, stream => \1), send_to($whole, $path));
my $client = send_to($left, $path, stream => \1);

# --- nginx's timeout makes it amber at once; a client that leaves does not

is($t->finish(send_to($cut, "/short$path"))->{status}, 504, 'timed out');
my %why = silent();
is_deeply([keys %why], [$cut], 'the server is reported as silent');
is($why{$cut}{active}, 0, 'no request waits');
is($why{$cut}{state}, 'amber', 'amber');
is($t->peer('llm', $t->{vars}{E3})->{reason}, 'silent', 'the reason');

sub state { return $t->peer('llm', $t->{vars}{E3})->{state} }

$t->control($t->{vars}{E3}, { fault => 'none', health_status => 500 });
ok(wait_for(sub { state() eq 'unhealthy' }), 'a health check fails');
$t->control($t->{vars}{E3}, { health_status => 200 });
ok(wait_for(sub { state() eq 'up' }), 'a health check passes');
is_deeply({silent()}, {}, 'the time starts again');

# --- one request waits

ok(wait_for(sub { %why = silent(); $why{$stream} }), 'a stream waits too long: reported');
cmp_ok(time() - $begin, '>=', 29, 'after half a minute');
is($why{$stream}{active}, 1, 'one request waits');
cmp_ok($why{$stream}{seconds}, '>=', 30, 'the seconds it has waited');
is($t->peer('llm', $t->{vars}{E0})->{state}, 'up', 'it is not ejected');
like($t->get('/kvroute/metrics')->{body},
     qr/^kvroute_upstream_cause_timestamp_seconds\{upstream="llm",(?#
       )code="silent",state="amber",peer="$stream"\} /m, 'metric');

# --- the client of a request leaves

ok(wait_for(sub { %why = silent(); $why{$left} }),
   'another server waits too long: reported');
close $client;
ok(wait_for(sub { $t->peer('llm', $t->{vars}{E2})->{active} == 0 }), 'the client leaves');
%why = silent();
is($why{$left}{active}, 0, 'no request waits, still reported');

# --- an answer in one piece

ok(!$why{$whole}, 'an answer in one piece may take long');

# --- the servers answer, one of them with 429

$t->control($t->{vars}{"E$_"}, { fault => 'none' }) for 0, 1;
$t->control($t->{vars}{E2}, { fault => 'status=429', retry_after => 1 });
is($t->finish(send_to($left, "/next$path"))->{status}, 200, 'another server answers');
is_deeply([keys %{{silent()}}], [$stream], 'a busy server is not silent');
served($stream);
is_deeply({silent()}, {}, 'no server is silent any more');

close $_ for @wait;

$t->done();
