#!/usr/bin/perl

# An engine that hangs while one request waits there: nothing ejects it, but the
# health is amber, since the time of that request, until any answer or another
# result of health checks. An answer that is no stream may take as long.

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

# --- nginx's timeout says it at once, and a client that leaves does not

is($t->finish(send_to($cut, "/short$path"))->{status}, 504, 'timed out');
my %why = silent();
is_deeply([keys %why], [$cut], 'is silent');
is($why{$cut}{active}, 0, 'and nobody waits');
is($why{$cut}{state}, 'amber', 'amber');
is($t->peer('llm', $t->{vars}{E3})->{reason}, 'silent', 'the reason');

sub state { return $t->peer('llm', $t->{vars}{E3})->{state} }

$t->control($t->{vars}{E3}, { fault => 'none', health_status => 500 });
ok(wait_for(sub { state() eq 'unhealthy' }), 'a health check fails');
$t->control($t->{vars}{E3}, { health_status => 200 });
ok(wait_for(sub { state() eq 'up' }), 'and passes');
is_deeply({silent()}, {}, 'it begins anew');

# --- one that waits

ok(wait_for(sub { %why = silent(); $why{$stream} }), 'waits too long');
cmp_ok(time() - $begin, '>=', 29, 'after half a minute');
is($why{$stream}{active}, 1, 'one waits');
cmp_ok($why{$stream}{seconds}, '>=', 30, 'for so long');
is($t->peer('llm', $t->{vars}{E0})->{state}, 'up', 'it is not ejected');
like($t->get('/kvroute/metrics')->{body},
     qr/^kvroute_upstream_cause_timestamp_seconds\{upstream="llm",(?#
       )code="silent",state="amber",peer="$stream"\} /m, 'metric');

# --- one whose client left

ok(wait_for(sub { %why = silent(); $why{$left} }), 'waits too long');
close $client;
ok(wait_for(sub { $t->peer('llm', $t->{vars}{E2})->{active} == 0 }), 'leaves');
%why = silent();
is($why{$left}{active}, 0, 'nobody waits');

# --- an answer that is no stream

ok(!$why{$whole}, 'a whole answer takes its time');

# --- they answer, if only that they are busy

$t->control($t->{vars}{"E$_"}, { fault => 'none' }) for 0, 1;
$t->control($t->{vars}{E2}, { fault => 'status=429', retry_after => 1 });
is($t->finish(send_to($left, "/next$path"))->{status}, 200, 'by another one');
is_deeply([keys %{{silent()}}], [$stream], 'a busy one is not silent');
served($stream);
is_deeply({silent()}, {}, 'none is');

close $_ for @wait;

$t->done();
