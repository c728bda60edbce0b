
/*
 * Copyright (C) kvroute contributors
 */


#include "core/state/kvr_load.h"


static void kvr_load_raise(kvr_load_t *load, uint32_t mark);
static int kvr_load_heal(kvr_load_t *load, uint32_t n, kvr_load_owner_t self,
    kvr_load_alive_pt alive, kvr_load_drop_pt drop, kvr_load_heal_pt heal,
    void *data);


/* rows start on separate cache lines, as their owners write all the time */
static uint32_t
kvr_load_stride(uint32_t columns)
{
    return (columns + kvr_load_names_words(columns) + 7) & ~7U;
}


size_t
kvr_load_size(uint32_t rows, uint32_t columns)
{
    return sizeof(kvr_load_t) + (rows + 1) * sizeof(kvr_load_row_t)
           + (size_t) (rows + 1) * kvr_load_stride(columns) * sizeof(uint64_t);
}


void
kvr_load_init(kvr_load_t *load, uint32_t rows, uint32_t columns)
{
    load->rows = rows;
    load->columns = columns;
    load->stride = kvr_load_stride(columns);
}


uint32_t
kvr_load_claim(kvr_load_t *load, kvr_load_owner_t owner, uint64_t generation)
{
    uint32_t         n;
    uint64_t         expected;
    kvr_load_row_t  *row;

    for (n = 0; n < load->rows; n++) {

        row = &load->row[n];

        if (atomic_load(&row->owner)) {
            continue;
        }

        /* first, so that the row is swept if the process is killed now */

        kvr_load_raise(load, n + 1);

        expected = 0;

        if (atomic_compare_exchange_strong(&row->owner, &expected, owner)) {
            atomic_store(&row->generation, generation);
            return n;
        }
    }

    kvr_load_raise(load, n + 1);

    return n;
}


static void
kvr_load_raise(kvr_load_t *load, uint32_t mark)
{
    uint32_t  high;

    high = atomic_load(&load->high);

    while (high < mark
           && !atomic_compare_exchange_weak(&load->high, &high, mark))
    {
        /* void */
    }
}


void
kvr_load_release(kvr_load_t *load, uint32_t row)
{
    uint32_t           i;
    _Atomic uint64_t  *word, *names;

    if (row == load->rows) {
        return;
    }

    word = kvr_load_words(load, row);

    for (i = 0; i < load->columns; i++) {
        if (atomic_load(&word[i])) {
            return;
        }
    }

    names = kvr_load_names(load, row);

    for (i = 0; i < kvr_load_names_words(load->columns); i++) {
        atomic_store(&names[i], 0);
    }

    atomic_store(&load->row[row].owner, 0);
}


void
kvr_load_name(kvr_load_t *load, uint32_t row, uint32_t column)
{
    atomic_fetch_or(&kvr_load_names(load, row)[column / 64],
                    1ULL << column % 64);
}


void
kvr_load_rename(kvr_load_t *load, uint32_t row, const uint64_t *names)
{
    uint32_t           i;
    _Atomic uint64_t  *own;

    own = kvr_load_names(load, row);

    for (i = 0; i < kvr_load_names_words(load->columns); i++) {

        if (row < load->rows) {
            atomic_store(&own[i], names[i]);

        } else {
            atomic_fetch_or(&own[i], names[i]);
        }
    }
}


int
kvr_load_used(kvr_load_t *load, uint32_t column)
{
    uint32_t        n, high;
    kvr_load_sum_t  sum;

    sum = kvr_load_get(load, column);

    if (sum.active || sum.pending) {
        return 1;
    }

    high = atomic_load(&load->high);

    for (n = 0; n < high; n++) {
        if (atomic_load(&kvr_load_names(load, n)[column / 64]) >> column % 64
            & 1)
        {
            return 1;
        }
    }

    return 0;
}


uint32_t
kvr_load_sweep(kvr_load_t *load, kvr_load_owner_t self,
    kvr_load_alive_pt alive, kvr_load_drop_pt drop, kvr_load_heal_pt heal,
    void *data)
{
    uint32_t  n, high, healed;

    healed = 0;
    high = kvr_min(atomic_load(&load->high), load->rows);

    for (n = 0; n < high; n++) {
        healed += kvr_load_heal(load, n, self, alive, drop, heal, data)
                  == KVR_OK;
    }

    return healed;
}


static int
kvr_load_heal(kvr_load_t *load, uint32_t n, kvr_load_owner_t self,
    kvr_load_alive_pt alive, kvr_load_drop_pt drop, kvr_load_heal_pt heal,
    void *data)
{
    int                rc;
    uint32_t           column;
    uint64_t           owner, sweeper;
    kvr_load_row_t    *row;
    _Atomic uint64_t  *word;

    row = &load->row[n];
    owner = atomic_load(&row->owner);

    if (owner == 0 || owner == self || owner == KVR_LOAD_REMOTE
        || alive(data, owner))
    {
        return KVR_DECLINED;
    }

    sweeper = atomic_load(&row->sweeper);

    if (sweeper && sweeper != self && alive(data, sweeper)) {
        return KVR_DECLINED;
    }

    if (!atomic_compare_exchange_strong(&row->sweeper, &sweeper, self)) {
        return KVR_DECLINED;
    }

    /* another process may have swept it before this one became the sweeper */

    if (atomic_load(&row->owner) != owner) {
        atomic_store(&row->sweeper, 0);
        return KVR_DECLINED;
    }

    rc = KVR_OK;

    /* first, as heal() may have to take the lock */

    if (drop == NULL) {
        atomic_store(&row->held, 0);

    } else if (atomic_load(&row->held)) {
        rc = drop(data, row);
    }

    word = kvr_load_words(load, n);

    for (column = 0; column < load->columns; column++) {

        if (atomic_load(&word[column]) == 0) {
            continue;
        }

        if (heal && heal(data, row, column, &word[column]) == KVR_AGAIN) {
            rc = KVR_AGAIN;
            continue;
        }

        atomic_store(&word[column], 0);
    }

    if (rc == KVR_AGAIN) {
        atomic_store(&row->sweeper, 0);
        return rc;
    }

    word = kvr_load_names(load, n);

    for (column = 0; column < kvr_load_names_words(load->columns); column++) {
        atomic_store(&word[column], 0);
    }

    /* in this order, or a second sweeper could take a new owner's row */

    atomic_store(&row->owner, 0);
    atomic_store(&row->sweeper, 0);

    return KVR_OK;
}
