#!/usr/bin/env python3
"""Draws scene.ppm, the picture of this example: hills, a sun, a house, a tree and a lake, with a
little noise."""
import math
import pathlib

WIDTH, HEIGHT = 360, 240


def inside_triangle(x, y, a, b, c):
    def side(p, q):
        return (q[0] - p[0]) * (y - p[1]) - (q[1] - p[1]) * (x - p[0])
    signs = [side(a, b) >= 0, side(b, c) >= 0, side(c, a) >= 0]
    return all(signs) or not any(signs)


def colour(x, y):
    if inside_triangle(x, y, (200, 118), (235, 88), (270, 118)):
        return (150, 60, 45)  # roof
    if 206 <= x < 264 and 118 <= y < 165:  # house
        for left, top in ((214, 126), (244, 126)):
            if left <= x < left + 12 and top <= y < top + 12:
                return (250, 235, 150)
        if 229 <= x < 241 and 142 <= y < 165:
            return (90, 60, 40)
        return (225, 205, 180)
    if (x - 118) ** 2 + (y - 125) ** 2 < 24 ** 2:
        return (50, 120, 50)  # tree
    if 114 <= x < 122 and 145 <= y < 172:
        return (85, 60, 35)
    if ((x - 90) / 75) ** 2 + ((y - 208) / 20) ** 2 < 1:
        wave = math.sin(y * 1.1 + math.sin(x * 0.12) * 2)
        return (70, 120 + int(20 * wave), 190 + int(30 * wave))  # lake
    if y > 160 + 6 * math.sin(x * 0.03):
        return (105, 165, 80)  # meadow
    if inside_triangle(x, y, (-40, 185), (70, 70), (185, 185)):
        return (235, 238, 245) if y < 95 + 4 * math.sin(x * 0.5) else (110, 110,
                                                                       125)  # mountain with snow
    if inside_triangle(x, y, (120, 190), (190, 95), (300, 190)):
        return (130, 130, 145)
    if (x - 290) ** 2 + (y - 48) ** 2 < 26 ** 2:
        return (255, 225, 110)  # sun
    return (120 + y // 3, 175 + y // 5, 235)  # sky


def main():
    state, pixels = 12345, bytearray()
    for y in range(HEIGHT):
        for x in range(WIDTH):
            state = (state * 1103515245 + 12345) & 0x7fffffff
            noise = (state >> 16) % 7 - 3
            pixels += bytes(max(0, min(255, int(c) + noise)) for c in colour(x, y))
    path = pathlib.Path(__file__).resolve().parent / "scene.ppm"
    path.write_bytes(b"P6\n%d %d\n255\n" % (WIDTH, HEIGHT) + bytes(pixels))
    print(f"wrote {path}")


main()
