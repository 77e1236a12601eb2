// NVRTC declares all of this by itself.
#pragma once
