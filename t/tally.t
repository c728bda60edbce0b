#!/usr/bin/perl

# Counters by model and tenant: which have a row of their own, which share one,
# and how a tenant is shown.

use lib 't/lib';
use Kvroute;

my $t = Kvroute->new();

$t->engines(2, '--hardware', 'none', '--model', 'm');

$t->upstream('llm', 'E0 E1 max_fails=0');
$t->upstream('queued', 'kvroute_queue max=1 timeout=1h;',
             'E0 max_conns=1 max_fails=0');
$t->upstream('beside', 'least_conn;', 'kvroute_shadow zone=z;', 'E0 E1');

$t->conf(<<'EOC')->run();
    log_format kv '$arg_n $status $kvroute_tenant';
    access_log %%DIR%%/access.log kv;

    client_body_buffer_size 1m;
    kvroute_tenant $http_x_key name=$http_x_name;
    location /v1/ { proxy_pass http://llm; }
    location /queued/ { proxy_pass http://queued/; }
    location /beside/ { proxy_pass http://beside/; }
    location /api/ { kvroute_api write=on; }
EOC

my $text = text(4000, 1);
my $n = 0;

sub ask {
    my ($path, $model, %header) = @_;

    $n++;

    return $t->post("$path?n=$n", chat($text, model => $model),
                    headers => \%header);
}

# of an upstream, by name; what has none is under ""

sub counted {
    my ($upstream, $what) = @_;

    return { map { ($_->{name} // '') => $_ }
             @{$t->status()->{upstreams}{$upstream}{$what}} };
}

my $chat = '/v1/chat/completions';

is(ask($chat, 'm', 'X-Key' => 'secret of acme', 'X-Name' => 'acme')->{status},
   200, 'served');
is(ask($chat, 'm', 'X-Key' => 'secret of beta')->{status}, 200, 'another');
is(ask($chat, 'm')->{status}, 200, 'nobody');
is(ask($chat, 'none such', 'X-Key' => 'stranger', 'X-Name' => 'x')->{status},
   404, 'no such model');
is(ask($chat, 'm', 'X-Key' => 'secret of acme', 'X-Name' => 'acme',
       'X-Engine-Fault' => 'status=500')->{status}, 500, 'it fails');

# a request is counted once it is over at its server

sub all {
    my ($counts) = @_;
    my $sum = 0;

    $sum += $_->{requests} for values %$counts;

    return $sum;
}

wait_for(sub { all(counted('llm', 'models')) == 5 });

my $models = counted('llm', 'models');
my $tenants = counted('llm', 'tenants');

is(join(' ', sort keys %$models), ' m', 'a model that is there has a name');
is($models->{m}{requests}, 4, 'its requests');
is($models->{m}{errors}, 1, 'its errors');
cmp_ok($models->{m}{prompt_bytes}, '>', 4 * 4000, 'its prompts');
cmp_ok($models->{m}{matched_bytes}, '>', 2 * 4000 - 600, 'what was held');
is($models->{''}{requests}, 1, 'the others');
ok($models->{''}{other}, 'are told from names');

my ($digits) = grep { /^[0-9a-f]{8}$/ } keys %$tenants;

is(join(' ', sort keys %$tenants), join(' ', sort '', 'acme', $digits // '?'),
   'tenants: by the name that is given, or by digits of a hash');
is($tenants->{acme}{requests}, 2, 'its requests');
is($tenants->{acme}{errors}, 1, 'its errors');
is($tenants->{''}{requests}, 1, 'a stranger that nobody has served');

unlike($t->get('/kvroute/json')->{body}, qr/secret of/,
       'what names a tenant is not shown');

my $log = $t->access_log();

like($log, qr/^1 200 acme$/m, 'in the log as on the page');
like($log, qr/^2 200 \Q$digits\E$/m, 'digits too');
like($log, qr/^3 200 -$/m, 'of none nothing');

# beside another method, and over a reload

is(ask("/beside$chat", 'm', 'X-Key' => 'k', 'X-Name' => 'gamma')->{status}, 200,
   'beside least_conn');
ok(wait_for(sub { (counted('beside', 'tenants')->{gamma}{requests} // 0) == 1 }),
   'counted there');

$t->reload();

is(counted('llm', 'tenants')->{acme}{requests}, 2, 'a reload keeps it');

# what the queue refuses: one runs, one waits

my @held = map { $t->start("POST /queued$chat", chat($text, max_tokens => 8),
                           headers => { 'X-Key' => 'q', 'X-Name' => 'delta',
                                        'X-Engine-Fault' => 'slow=200',
                                        'X-Engine-Output-Tokens' => 8 }) } 1 .. 2;

wait_for(sub { $t->status()->{upstreams}{queued}{queue}{size} == 1 });

is(ask("/queued$chat", 'm', 'X-Key' => 'q', 'X-Name' => 'delta')->{status}, 429,
   'refused');

is($t->finish($_)->{status}, 200, 'served at last') for @held;

wait_for(sub { (counted('queued', 'tenants')->{delta}{requests} // 0) == 2 });

my $sum = 0;
$sum += $_->{rejects} for values %{counted('queued', 'tenants')};

is($sum, 1, 'one was refused');
is(counted('queued', 'tenants')->{delta}{requests}, 2, 'and is no request');

$t->done();
