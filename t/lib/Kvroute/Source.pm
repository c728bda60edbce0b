package Kvroute::Source;

# What is to be known of C sources, read as text.
#
# What it knows of C is nginx's way to write it: a function's name begins its
# line, and its end is a brace at the margin.

use strict;
use warnings;

use File::Find;

# what core has no use for

my $LIBC = join '|', qw(
    malloc calloc realloc free strdup
    time clock clock_gettime gettimeofday
    printf fprintf sprintf snprintf vsnprintf puts fputs perror
    fopen open read write abort exit getenv rand random
);

# what no type begins with

my %KEYWORD = map { $_ => 1 } qw(return else case goto sizeof typedef);

my %parsed;


# The text of each source below the folders, by its path in the tree.

sub load {
    my ($root, @folders) = @_;
    my %files;

    find({ no_chdir => 1, wanted => sub {
        return unless /\.(?:c|h|inc)$/ && !/Makefile/ && -f;

        open my $fh, '<', $_ or die "$_: $!";
        local $/;
        $files{substr $_, 1 + length $root} = <$fh>;
    } }, grep { -d } map { "$root/$_" } @folders);

    return \%files;
}


# without comments, and without what strings say; lines stay where they are

sub bare {
    my ($text) = @_;

    $text =~ s{(/\*.*?\*/|//[^\n]*)|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'}
              {defined $1 ? "\n" x ($1 =~ tr/\n//) || ' ' : '""'}gse;

    return $text;
}


# Tables: a macro that gives each line of a list to the macro that it is handed.
# Where a file uses one of its own there is what comes of it, in one line.

sub tables {
    my ($code) = @_;
    my %macro;

    while ($code =~ /^#define[ \t]+(\w+)\(([\w, ]+)\)((?:[^\n]*\\\n)*[^\n]*)/mg) {
        my ($name, $args, $body) = ($1, $2, $3);
        $macro{$name} = { args => [split /\W+/, $args],
                          body => $body =~ s/\\\n/ /gr };
    }

    $code =~ s{^([ \t]*)(\w+)\((\w+)\)[ \t]*$}{
        my ($table, $line) = ($macro{$2}, $macro{$3});
        $table && $line ? $1 . listed($table, $line) : $&;
    }gme;

    return $code;
}


sub listed {
    my ($table, $line) = @_;
    my $all = '';

    while ($table->{body} =~ /\b\Q$table->{args}[0]\E\(([^()]*)\)/g) {
        my %value;
        @value{@{$line->{args}}} = map { s/\s//gr } split /,/, $1;

        $all .= $line->{body} =~ s/\s*##\s*(\w+)/$value{$1} \/\/ $1/ger
                                  =~ s/\b(\w+)\b/$value{$1} \/\/ $1/ger;
    }

    return $all;
}


# The declarations and definitions at a file's margin: [line, text], where a
# text ends with ";" or, if it is a function, with "{}".

sub items {
    my ($code) = @_;
    my ($depth, $item, $from, $n) = (0, '', 0, 0);
    my @items;

    $code =~ s{^([ \t]*\#(?:[^\n]*\\\n)*[^\n]*)}{"\n" x ($1 =~ tr/\n//)}gme;

    for my $line (split /\n/, $code) {
        $n++;
        next if $depth && $line !~ /[{}]/;

        $depth = 1 if $depth && $line =~ /^\}/;

        while ($line =~ /([^{};]*)([{};]?)/g) {
            my ($text, $c) = ($1, $2);

            if ($depth == 0) {
                $from = $n if $item !~ /\S/ && $text =~ /\S/;
                $item .= $text;
            }

            if ($c eq '{') {
                $item .= $c if $depth++ == 0;

            } elsif ($c eq '}' && $depth) {

                if (--$depth == 0) {
                    $item .= $c;

                    if ($item =~ /\)\s*\{\}$/ && $item !~ /=/) {
                        push @items, [$from, $item];
                        $item = '';
                    }
                }

            } elsif ($c eq ';' && $depth == 0) {
                push @items, [$from, "$item;"] if $item =~ /\S/;
                $item = '';
            }
        }

        $item .= ' ' if $depth == 0;
    }

    return @items;
}


sub constant {
    my ($declared) = @_;

    return $declared =~ /\*([^*]*)$/ ? $1 =~ /\bconst\b/
                                     : $declared =~ /\bconst\b/;
}


# a balanced pair of parentheses

my $GROUP = qr/\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)/;


# What a file defines, declares and keeps to itself, at its margin.

sub margin {
    my ($f, $header) = @_;

    for (items($f->{code})) {
        my ($line, $item) = @$_;

        $item =~ s/\b(?:__attribute__|[A-Z][A-Z0-9_]+)\s*$GROUP//g;
        $item =~ s/\s+/ /g;
        $item =~ s/^ //;

        next if $item =~ /^(?:typedef|_Static_assert)\b/
                || $item =~ /^(?:struct|enum|union)[\w ]*(?:\{\} ?)?;/;

        if ($item =~ /^([^=]*[\w*]) ?\b(\w+) ?$GROUP ?(\{\}|;)$/) {
            my ($type, $name, $end) = ($1, $2, $3);
            my $static = $type =~ /\bstatic\b/;

            if ($end eq ';') {
                $f->{protos}{$name} = $line unless $static;

            } elsif ($static && !$header) {
                $f->{static}{$name} = 1;

            } else {
                $f->{defs}{$name} = { line => $line, inline => $static };
            }

        } elsif ($item =~ /^extern\b.*?(\w+) ?(?:\[[^]]*\] ?)*;$/) {
            $f->{protos}{$1} = $line;

        } elsif ($item =~ /^([\w* {}]*[ *])(\w+) ?(?:\[[^]]*\] ?)*(?:=.*)?;$/) {
            my ($type, $name) = ($1, $2);

            if ($type =~ /\bstatic\b/) {
                $f->{static}{$name} = 1;

            } elsif ($type !~ /\bngx_module_t\b/) {
                $f->{defs}{$name} = { line => $line, variable => 1 };
            }

            push @{$f->{mutable}}, [$line, $name] unless constant($type);
        }
    }
}


# What enums count: their names, what is of their type, arrays and what these
# are indexed by.  A function's variables are its own, members are of all.

sub enums {
    my ($f, $header) = @_;

    while ($f->{code} =~ /\b_Static_assert\s*\(([^;]*);/g) {
        push @{$f->{asserts}}, $1;
    }

    while ($f->{code} =~ /\benum\s*\w*\s*\{([^}]*)\}\s*(\w*)/g) {
        my ($list, $type) = ($1, $2);
        my @names = map { /(\w+)/ ? $1 : () } split /,/, $list;
        $f->{enums}{$type || "of $names[0]"} = \@names if @names > 1;
    }

    for my $part (split /^\}/m, $f->{code}) {
        my %typed;

        while ($part =~ /\b(\w+_e)\s+\**(\w+)\s*[,;)=:\[]/g) {
            $typed{$2} = $1;
        }

        while ($part =~ /\b(\w+)\[([^][]*?)(\w+)\s*\)?\]/g) {
            $f->{index}{$1}{$typed{$3} // $3} = 1;
        }

        %{$f->{members}} = (%{$f->{members}}, %typed) if $header;
    }

    while ($f->{code} =~ /^[ \t]*((?:\w+[\s*]+)+)(\w+)\[([^]]*)\]
                          (?:\[[^]]*\])*\s*([=;,])/xmg)
    {
        my ($type, $name, $size, $c) = ($1, $2, $3, $4);

        push @{$f->{arrays}}, { name => $name, size => $size, init => $c eq '=' }
            unless $KEYWORD{($type =~ /^(\w+)/)[0]};
    }
}


# What is to be known of a file:
#
#     lines      how many
#     includes   what it includes, as written
#     defs       what it exports by its name: line; inline, or variable
#     protos     what it declares by its name: line
#     static     what it keeps to itself
#     mutable    variables: line, name
#     words      all names but those of members
#     libc       calls that core has no use for
#     enums      names of an enum's values by its type
#     members    types of what is of an enum's type, of a header
#     arrays     their names, sizes as written, and whether they list something
#     index      by what an array is indexed: a type or a name
#     asserts    what is asserted at compile time

sub parse {
    my ($path, $text) = @_;

    my $known = $parsed{$path};
    return $known if $known && $known->{text} eq $text;

    my $header = $path !~ /\.c$/;
    my $code = tables(bare($text));

    my $f = { text => $text, code => $code, lines => $text =~ tr/\n//,
              map({ $_ => {} } qw(defs protos static words enums members index)),
              map({ $_ => [] } qw(includes mutable libc arrays asserts)) };

    # names of files are strings

    push @{$f->{includes}}, $text =~ /^[ \t]*#[ \t]*include[ \t]+"([^"]+)"/mg;
    push @{$f->{libc}}, $code =~ /(?<![\w.])(?<!->)($LIBC)\s*\(/g;

    $f->{words}{$_} = 1 for $code =~ /(?<![\w.])(?<!->)([A-Za-z_]\w*)/g;

    # a fragment defines the name that it is given

    if (grep { /\.inc$/ } @{$f->{includes}}) {
        $f->{defs}{$_} = { line => 1, variable => 1 }
            for $code =~ /^#define[ \t]+\w+[ \t]+([a-z]\w+)$/mg;
    }

    margin($f, $header);
    enums($f, $header);

    while ($code =~ /^[ \t]+static[ \t]+([\w* \t]*[ \t*])(\w+)[^\n;=(]*[=;]/mg) {
        my ($type, $name, $line) = ($1, $2, substr($code, 0, $-[0]) =~ tr/\n//);
        push @{$f->{mutable}}, [$line + 1, $name] unless constant($type);
    }

    return $parsed{$path} = $f;
}


1;
