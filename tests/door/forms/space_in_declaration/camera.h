#pragma once
#include "spaces.h"
#define FN DEVICE_ONLY

namespace scene {
FN inline float half_of(float value) { return 0.5f * value; }

class Camera {
public:
    Camera(int width, int height) : width_(width), height_(height) {}
    BOTH_SIDES int height() const;
    BOTH_SIDES float at(int pixel) const;
    void describe() const;

private:
    int width_, height_;
};

BOTH_SIDES float twice(float value);
}  // namespace scene
#undef FN
