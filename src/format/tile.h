/* tile.h - constants shared by both formats. */
#ifndef BINADE_FORMAT_TILE_H
#define BINADE_FORMAT_TILE_H

#include <stdint.h>

/* A tile is 128 consecutive weights of one row; a row of K columns has TN = ceil(K / TILE) tiles.
 */
enum { TILE = 128 };

/* Rice: k in 0..3, q = rank >> k at most 63. */
enum { RICE_K_MAX = 3, RICE_Q_MAX = 63 };

/* The most bits an encoder writes for a tile: k = 3 is always allowed and costs at most
 * 128 * 3 low bits and 128 * (255 >> 3) unary bits. */
enum { RICE_TILE_MAX_NBITS = TILE * 3 + TILE * 31 };

/* Slack, in bytes, that must be readable behind a decoder's input streams, and writable behind an
 * encoder's output streams: one whole tile by the loosest valid meta, plus one vector. */
enum { STREAM_SLACK = 128 * (3 + 63) / 8 + 64 };

#endif
